"""The gradients of an actor-critic, compiled by Numba. The formulas are those of `actor_critic`, `ppo` and `mlp`.

One call computes the forward pass of one of the two networks, its loss and its backward pass. NumPy needs a call, and a
pass over the memory, for each operator. Here all operators between two matrix products are one loop, and the rows of a
minibatch are processed in blocks that stay in the cache. The products are those of SciPy's BLAS, which Numba calls,
because compiled loops reach only half of its speed.

The results differ from those of NumPy by rounding: sums have another order, and tanh is an approximation with an error
of 3e-7. They do not depend on the thread, and calls release Python's global interpreter lock.

The functions without an underscore have a signature. So they are compiled when this module is imported, for any network
at once, and an array of another type is an error. Numba keeps the machine code on disk. It notices a change only of the
file of a function, so all functions are in this one. In names, `d_x` is the derivative of the loss by x.

Numba writes an index and then the machine code that it names: each atomically, but not both. If an earlier version has
left machine code of the same name, and a process is killed in between, all later ones would load that. So names contain
a fingerprint: a file has one content, whoever writes it, and whenever.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.process.threads import ThreadCounts, large_matrices
from offbeat.core.types import F32

_COUNTS = ThreadCounts()
try:
    from numba import __version__ as numba_version
    from numba import njit, types
    from numba.core.registry import cpu_target

    import_module("scipy.linalg.cython_blas")
except ImportError as error:  # also: Numba refuses a NumPy that is newer than it
    missing = isinstance(error, ModuleNotFoundError)
    problem = f"{error.name} is not installed" if missing else f"it cannot be imported ({error})"
    install = 'pip install "offbeat[compiled]"' if missing else 'pip install -U "offbeat[compiled]"'
    raise ConfigError(f"kernels is numba, but {problem}: run {install}, or pass --set kernels=numpy") from error
_COUNTS.restore()  # SciPy has a BLAS of its own, which uses all cores when it is loaded
_a, _b = large_matrices()
import_module("scipy.linalg.blas").sgemm(1, _b.T, _a.T)  # see `threads.write_blas_memory`

BLOCK = 128
"""Rows of a block. With more, the activations of a small network leave the cache; with fewer, products are slower."""
SMALL = 2**14
"""Elements of the largest weight that is transposed for a forward pass. BLAS does the same for larger ones itself."""
WEIGHT, BIAS, OUTPUTS, INPUTS = range(4)
"""Columns of `Network.layers`."""
LOSS, KL, RATIO, CLIPPED, DEVIATION, ENTROPY = range(6)
"""What a loss adds up over the rows of a minibatch. DEVIATION is a maximum. The loss of the values has only LOSS."""
SUMS = 6
ONE = np.float32(1)
# tanh(x) = x P(x^2) / Q(x^2), as in Eigen and XLA; coefficients from the highest power. Beyond the limit it is 1.
TANH_LIMIT = np.float32(7.90531110763549805)
P6, P5, P4 = np.float32(-2.76076847742355e-16), np.float32(2.00018790482477e-13), np.float32(-8.60467152213735e-11)
P3, P2, P1 = np.float32(5.12229709037114e-08), np.float32(1.48572235717979e-05), np.float32(6.37261928875436e-04)
P0 = np.float32(4.89352455891786e-03)
Q3, Q2 = np.float32(1.19825839466702e-06), np.float32(1.18534705686654e-04)
Q1, Q0 = np.float32(2.26843463243900e-03), np.float32(4.89352518554385e-03)


class Network(NamedTuple):
    """A multi-layer perceptron in a flat buffer, with its workspaces."""

    values: F32
    """[size]: the buffer with its parameters, and perhaps others."""
    gradients: F32
    """[size]: the buffer for the gradients."""
    layers: NDArray[np.int64]
    """[L, 4], the head last: offsets of weight and bias in the buffer, number of outputs and inputs."""
    relu: bool
    """Whether the activation is ReLU; else it is tanh."""
    hidden: F32
    """[L - 1, at least rows x outputs]: the activations of hidden layers."""
    output: F32
    """[at least rows, outputs]."""
    d_output: F32
    """[at least rows, outputs]."""
    transposed: F32
    """[L - 1, SMALL]: the small weights of hidden layers."""
    scratch: F32
    """[3, at least BLOCK x outputs, or inputs x outputs, of each layer]."""


class PolicyLoss(NamedTuple):
    """The settings of the policy's loss."""

    normalize: bool
    """Whether advantages are normalised over the rows."""
    clipped: bool
    """Whether it is PPO's clipped surrogate; else it is the plain policy gradient."""
    clip: float
    entropy_coef: float


_vector, _matrix, _table, _index = types.float32[::1], types.float32[:, ::1], types.int64[:, ::1], types.int64[::1]
_network = types.NamedTuple((_vector, _vector, _table, types.boolean, *[_matrix] * 5), Network)
_policy_loss_type = types.NamedTuple((types.boolean, types.boolean, types.float64, types.float64), PolicyLoss)
_forwarded = (_network, _matrix, types.boolean, _index)
"""The first arguments of all gradients: network, x, forwarded, rows."""
_sums = types.float64[::1]

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def fingerprint(module: str) -> str:
    """Return a text for all that machine code depends on: the source of a module, Numba's version, and the CPU."""
    parts = (inspect.getsource(sys.modules[module]), numba_version, cpu_target.target_context.codegen().magic_tuple())
    return sha256(repr(parts).encode()).hexdigest()[:16]


def compiled(*signature: Any) -> Callable[[Function], Function]:
    """Compile a function for arguments of these types; without types, when another compiled function calls it.

    Raises:
        ConfigError: there is no folder for the machine code, or it cannot be written.
    """
    # a * b + c may be rounded once, but sums keep their order.
    options = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract"}}

    def decorate(function: Function) -> Function:
        try:
            function.__qualname__ += f"_{fingerprint(function.__module__)}"
            dispatcher: Function = njit(types.void(*signature) if signature else None, **options)(function)
        except (RuntimeError, OSError) as error:
            raise ConfigError(
                f"{error}: set the environment variable NUMBA_CACHE_DIR to a folder that Numba can write to, or pass "
                "--set kernels=numpy"
            ) from error
        return dispatcher

    return decorate


# --- a network ----------------------------------------------------------------------------------------------


@compiled()
def _weight(buffer: F32, layer: NDArray[np.int64]) -> F32:
    first, outputs, inputs = layer[WEIGHT], layer[OUTPUTS], layer[INPUTS]
    return buffer[first : first + outputs * inputs].reshape(outputs, inputs)


@compiled()
def _bias(buffer: F32, layer: NDArray[np.int64]) -> F32:
    return buffer[layer[BIAS] : layer[BIAS] + layer[OUTPUTS]]


@compiled()
def _transpose(x: F32, out: F32) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j, i] = x[i, j]


@compiled()
def _tanh(x: np.float32) -> Any:
    limited = min(max(x, -TANH_LIMIT), TANH_LIMIT)
    square = limited * limited
    p = (((((P6 * square + P5) * square + P4) * square + P3) * square + P2) * square + P1) * square + P0
    q = ((Q3 * square + Q2) * square + Q1) * square + Q0
    return limited * p / q


@compiled()
def _activate(x: F32, bias: F32, relu: bool) -> None:
    """Add the bias to x, [M, n], and apply the activation, in place."""
    for i in range(x.shape[0]):
        if relu:
            for j in range(x.shape[1]):
                y = x[i, j] + bias[j]
                x[i, j] = np.float32(0) if y < 0 else y  # NaN stays
        else:
            for j in range(x.shape[1]):
                x[i, j] = _tanh(x[i, j] + bias[j])


@compiled()
def _activation_gradient(d: F32, activated: F32, d_bias: F32, relu: bool) -> None:
    """Multiply d, [M, n], by the derivative of the activation, and add the sums over the rows to d_bias, [n]."""
    for i in range(d.shape[0]):
        if relu:
            for j in range(d.shape[1]):
                d[i, j] = d[i, j] if activated[i, j] > 0 else np.float32(0)
                d_bias[j] += d[i, j]
        else:
            for j in range(d.shape[1]):
                d[i, j] *= ONE - activated[i, j] * activated[i, j]
                d_bias[j] += d[i, j]


@compiled(_network, _matrix)
def forward(network: Network, x: F32) -> None:
    """Write the activations, and the outputs for x, [M, inputs], into the first M rows of `network.output`."""
    hidden, head = len(network.layers) - 1, network.layers[-1]
    small = network.layers[:hidden, OUTPUTS] * network.layers[:hidden, INPUTS] <= SMALL
    for layer in range(hidden):
        if small[layer]:
            weight = _weight(network.values, network.layers[layer])
            _transpose(weight, network.transposed[layer, : weight.size].reshape(weight.shape[1], weight.shape[0]))
    for first in range(0, len(x), BLOCK):
        last = min(first + BLOCK, len(x))
        inputs = x[first:last]
        for layer in range(hidden):
            n, m = network.layers[layer, OUTPUTS], network.layers[layer, INPUTS]
            activated = network.hidden[layer, first * n : last * n].reshape(last - first, n)
            if small[layer]:
                np.dot(inputs, network.transposed[layer, : m * n].reshape(m, n), activated)
            else:
                np.dot(inputs, _weight(network.values, network.layers[layer]).T, activated)
            _activate(activated, _bias(network.values, network.layers[layer]), network.relu)
            inputs = activated
        output, bias = network.output[first:last], _bias(network.values, head)
        np.dot(inputs, _weight(network.values, head).T, output)
        for i in range(len(output)):
            for j in range(len(bias)):
                output[i, j] += bias[j]


@compiled()
def _begin(network: Network, x: F32, forwarded: bool) -> None:
    """Run the forward pass for x unless it was the last one, and set `network.d_output` to 0 for its rows."""
    if not forwarded:
        forward(network, x)
    network.d_output[: len(x)] = 0


@compiled()
def _backward(network: Network, x: F32) -> None:
    """Write all gradients for the activations of the last `forward`, for x, and for `network.d_output`."""
    for layer in network.layers:
        _bias(network.gradients, layer)[:] = 0
    d_bias = _bias(network.gradients, network.layers[-1])
    for i in range(len(x)):
        for j in range(len(d_bias)):
            d_bias[j] += network.d_output[i, j]
    for first in range(0, len(x), BLOCK):
        last = min(first + BLOCK, len(x))
        d = network.d_output[first:last]
        for layer in range(len(network.layers) - 1, -1, -1):
            m, gradient = network.layers[layer, INPUTS], _weight(network.gradients, network.layers[layer])
            inputs = x[first:last]
            if layer:
                inputs = network.hidden[layer - 1, first * m : last * m].reshape(last - first, m)
            _add_weight_gradient(d, inputs, gradient, network.scratch[2], first)
            if layer:
                d_inputs = network.scratch[layer % 2, : (last - first) * m].reshape(last - first, m)
                np.dot(d, _weight(network.values, network.layers[layer]), d_inputs)
                d_bias = _bias(network.gradients, network.layers[layer - 1])
                _activation_gradient(d_inputs, inputs, d_bias, network.relu)
                d = d_inputs


@compiled()
def _add_weight_gradient(d: F32, x: F32, gradient: F32, scratch: F32, first: int) -> None:
    """Add ``d^T x`` to a gradient; in the block with the first row of a minibatch, replace it."""
    if first == 0:
        np.dot(d.T, x, gradient)
        return
    product = scratch[: gradient.size].reshape(gradient.shape)
    np.dot(d.T, x, product)
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            gradient[i, j] += product[i, j]


# --- losses -------------------------------------------------------------------------------------------------


@compiled()
def _shift_and_scale(advantages: F32, normalize: bool) -> Any:
    """Return the mean of advantages and the factor that makes their standard deviation 1; else 0 and 1.

    If the squares overflow the factor is NaN, so that the update is refused.
    """
    if not normalize:
        return np.float32(0), ONE
    total, squares = 0.0, 0.0
    for i in range(len(advantages)):
        total += advantages[i]
    mean = np.float32(total / len(advantages))
    for i in range(len(advantages)):
        squares += (advantages[i] - mean) ** 2
    if squares == np.inf:
        return mean, np.float32(np.nan)
    return mean, np.float32(1 / (math.sqrt(squares / len(advantages)) + 1e-8))


@compiled()
def _policy_loss(
    log_prob: np.float32, reference: np.float32, advantage: np.float32, loss: PolicyLoss, sums: Any
) -> Any:
    """Add the loss of a row and its metrics to the sums; return its derivative by log_prob."""
    if not loss.clipped:
        sums[LOSS] -= advantage * log_prob
        return -advantage
    log_ratio = log_prob - reference
    ratio_minus_1 = np.float32(math.expm1(log_ratio))
    ratio, deviation = ratio_minus_1 + ONE, abs(ratio_minus_1)
    surrogate = ratio * advantage
    clipped = min(max(ratio, np.float32(1 - loss.clip)), np.float32(1 + loss.clip)) * advantage
    beyond = surrogate > clipped  # false for NaN, so that the update is refused
    sums[LOSS] -= clipped if beyond else surrogate
    sums[KL] += ratio_minus_1 - log_ratio
    sums[RATIO] += ratio
    sums[CLIPPED] += deviation > loss.clip
    sums[DEVIATION] = max(sums[DEVIATION], deviation)
    return np.float32(0) * ratio if beyond else -surrogate  # NaN for an infinite ratio, so that the update is refused


@compiled(*_forwarded, _index, _vector, _vector, _policy_loss_type, _sums)
def categorical_gradients(
    network: Network,
    x: F32,
    forwarded: bool,
    rows: NDArray[np.int64],
    action: NDArray[np.int64],
    reference: F32,
    advantages: F32,
    loss: PolicyLoss,
    sums: NDArray[np.float64],
) -> None:
    """Write the gradients of a policy with one categorical component.

    Args:
        network: the policy.
        x: observations, [N, inputs].
        forwarded: whether the last `forward` was with x.
        rows: indices in x of the M rows of the loss.
        action: [M].
        reference: [M], log-probabilities under the reference policy, see `algorithms/on_policy.py`.
        advantages: [M].
        loss: its settings.
        sums: see `LOSS`; they begin at 0.
    """
    _begin(network, x, forwarded)
    mean, scale = _shift_and_scale(advantages, loss.normalize)
    choices, share = network.output.shape[1], np.float32(1 / len(rows))
    coef = np.float32(loss.entropy_coef) * share
    log_probs = np.empty(choices, np.float32)
    for i in range(len(rows)):
        logits, d_logits = network.output[rows[i]], network.d_output[rows[i]]
        largest, total, entropy = logits[0], np.float32(0), np.float32(0)
        for c in range(1, choices):
            largest = max(largest, logits[c])
        for c in range(choices):
            log_probs[c] = logits[c] - largest
            d_logits[c] = math.exp(log_probs[c])
            total += d_logits[c]
        log_total = np.float32(math.log(total))
        for c in range(choices):
            log_probs[c] -= log_total
            d_logits[c] /= total  # a probability
            entropy -= d_logits[c] * log_probs[c]
        sums[ENTROPY] += entropy
        d = share * _policy_loss(log_probs[action[i]], reference[i], (advantages[i] - mean) * scale, loss, sums)
        for c in range(choices):
            # d (-coef mean H) / d logits = coef / M * p (log p + H)
            d_logits[c] *= coef * (log_probs[c] + entropy) - d
        d_logits[action[i]] += d
    _backward(network, x)


@compiled(*_forwarded, _matrix, _vector, _vector, _policy_loss_type, _sums, _vector, _vector)
def gaussian_gradients(
    network: Network,
    x: F32,
    forwarded: bool,
    rows: NDArray[np.int64],
    action: F32,
    reference: F32,
    advantages: F32,
    loss: PolicyLoss,
    sums: NDArray[np.float64],
    log_std: F32,
    d_log_std: F32,
) -> None:
    """Write the gradients of a policy with a diagonal Gaussian, [P], whose log standard deviation is a parameter.

    The arguments are those of `categorical_gradients`. `action` is [M, P]; `d_log_std` is written.
    """
    _begin(network, x, forwarded)
    mean, scale = _shift_and_scale(advantages, loss.normalize)
    size, share = len(log_std), np.float32(1 / len(rows))
    inverse_std, constant = np.exp(-log_std), np.float32(0)
    for j in range(size):
        constant += log_std[j] + np.float32(0.5 * math.log(2 * math.pi))
    d_log_std[:] = -loss.entropy_coef
    for i in range(len(rows)):
        means, z, squares = network.output[rows[i]], network.d_output[rows[i]], np.float32(0)
        for j in range(size):
            z[j] = (action[i, j] - means[j]) * inverse_std[j]
            squares += z[j] * z[j]
        log_prob = np.float32(-0.5) * squares - constant
        d = share * _policy_loss(log_prob, reference[i], (advantages[i] - mean) * scale, loss, sums)
        for j in range(size):
            d_log_std[j] += d * (z[j] * z[j] - ONE)
            z[j] *= d * inverse_std[j]  # now d loss / d mean
    sums[ENTROPY] = len(rows) * (constant + 0.5 * size)  # it does not depend on the mean
    _backward(network, x)


@compiled(*_forwarded, _vector, _vector, types.float64, types.float64, _sums)
def value_gradients(
    network: Network,
    x: F32,
    forwarded: bool,
    rows: NDArray[np.int64],
    proximal: F32,
    targets: F32,
    clip: float,
    coef: float,
    sums: NDArray[np.float64],
) -> None:
    """Write the gradients of a critic.

    The arguments that are not here are those of `categorical_gradients`.

    Args:
        network: the critic.
        x: observations, [N, inputs].
        forwarded: whether the last `forward` was with x.
        rows: indices in x of the M rows of the loss.
        proximal: [M], values of the critic at the start of the learning step.
        targets: [M].
        clip: limit on the change of a value; infinity: no limit.
        coef: factor of the loss in the gradients.
        sums: see `LOSS`; they begin at 0.
    """
    _begin(network, x, forwarded)
    share = np.float32(coef / len(rows))
    for i in range(len(rows)):
        value = network.output[rows[i], 0]
        error, change = value - targets[i], value - proximal[i]
        clipped_error = proximal[i] + np.float32(math.copysign(clip, change)) - targets[i]
        if abs(change) > clip and clipped_error * clipped_error > error * error:
            sums[LOSS] += 0.5 * clipped_error * clipped_error
        else:
            sums[LOSS] += 0.5 * error * error
            network.d_output[rows[i], 0] = share * error
    _backward(network, x)
