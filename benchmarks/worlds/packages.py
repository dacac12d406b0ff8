"""Packages of envs: what to type for each. The only source of the table in docs/how-to/packages.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A package of envs on PyPI, and one of its envs."""

    name: str
    """Name of the package for pip."""
    env: str
    """What to type."""
    settings: tuple[str, ...] = ()
    """What the env needs after `--set`."""
    algorithm: str = "ppo"
    extra: tuple[str, ...] = ()
    """More packages to install with it."""
    afterwards: tuple[str, ...] = ()
    """Packages to install after it, in place of the versions that it requires."""
    variables: tuple[str, ...] = ()
    """Environment variables that the env needs, NAME=VALUE."""
    wrapper: str = ""
    """A module of one's own that makes the env: its name is that before the colon of `env`."""
    note: str = ""
    """What a user should know, and known breaks."""
    untried: str = ""
    """Why it is not tried; '' if it is."""


CRAFTER = '''
import crafter
import gymnasium


class Crafter(gymnasium.Env):
    """Crafter has gym's old API: four values from step, and no seed in reset."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.inner = crafter.Env()
        self.observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), "uint8")
        self.action_space = gymnasium.spaces.Discrete(self.inner.action_space.n)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.inner = crafter.Env(seed=seed)
        return self.inner.reset(), {}

    def step(self, action):
        observation, reward, done, info = self.inner.step(action)
        died = info["discount"] == 0
        return observation, float(reward), done and died, done and not died, {}

    def render(self):
        return self.inner.render()
'''

ONE_REWARD = """
import mo_gymnasium
import numpy as np


def make():
    env = mo_gymnasium.make("deep-sea-treasure-v0")
    return mo_gymnasium.wrappers.LinearReward(env, np.array([0.9, 0.1]))  # the shares of treasure and time
"""

LISTS = '''
import gymnasium
from pettingzoo import ParallelEnv


class ListWorld(ParallelEnv):
    """The API of PettingZoo for a Gymnasium env whose spaces are tuples, one item an agent."""

    metadata = {"render_modes": []}

    def __init__(self, env_id):
        self.env = gymnasium.make(env_id, disable_env_checker=True).unwrapped
        self.possible_agents = [f"agent_{index}" for index in range(len(self.env.action_space))]

    def observation_space(self, agent):
        return self.env.observation_space[self.possible_agents.index(agent)]

    def action_space(self, agent):
        return self.env.action_space[self.possible_agents.index(agent)]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        observations, _ = self.env.reset(seed=seed)
        return self.by_agent(observations), {agent: {} for agent in self.agents}

    def step(self, actions):
        observations, rewards, ended, cut, _ = self.env.step([actions[agent] for agent in self.agents])
        everyone, infos = len(self.agents), {agent: {} for agent in self.agents}
        returned = [self.by_agent(each) for each in (observations, rewards, [ended] * everyone, [cut] * everyone)]
        if ended or cut:
            self.agents = []
        return *returned, infos

    def by_agent(self, values):
        return dict(zip(self.agents, values, strict=True))
'''

WAREHOUSE = f"""{LISTS}

def make():
    return ListWorld("rware:rware-tiny-2ag-v2")
"""

FORAGING = f"""{LISTS}

def make():
    return ListWorld("lbforaging:Foraging-8x8-2p-3f-v3")
"""

MATRIX = """
import gymnasium
import numpy as np


def make():
    start = np.array([1.0, 0.0])
    following = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.1, 0.9], [0.8, 0.2]]])  # [next state, state, action]
    rewards = np.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]])
    return gymnasium.make("matrix_mdp:matrix_mdp/MatrixMDP-v0", p_0=start, p=following, r=rewards)
"""

PRICES = """
import gymnasium
import numpy as np
import pandas


def make():
    walk = 100 * np.exp(np.cumsum(np.random.default_rng(0).normal(0, 0.01, 1000)))
    prices = pandas.DataFrame({"close": walk}, pandas.date_range("2025-01-01", periods=1000, freq="h"))
    prices["feature_change"] = prices["close"].pct_change().fillna(0)
    return gymnasium.make("gym_trading_env:TradingEnv", df=prices, positions=[-1, 0, 1], verbose=0)
"""

MARIO = """
import gymnasium
from gym_super_mario_bros import SuperMarioBrosEnv


class Mario(gymnasium.Env):
    def __init__(self):
        self.inner = SuperMarioBrosEnv()
        self.observation_space = gymnasium.spaces.Box(0, 255, (240, 256, 3), "uint8")
        self.action_space = gymnasium.spaces.Discrete(self.inner.action_space.n)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.inner.reset(), {}

    def step(self, action):
        observation, reward, done, _ = self.inner.step(int(action))
        return observation, float(reward), done, False, {}
"""

QUADRUPED = """
import gymnasium
from gym_quadruped.quadruped_env import QuadrupedEnv


class WithInfo(gymnasium.Wrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed), {}


def make():
    return WithInfo(QuadrupedEnv("mini_cheetah"))
"""

BLUESKY = """
import bluesky_gym
import gymnasium
from gymnasium.vector import AsyncVectorEnv

bluesky_gym.register_envs()


def make(render_mode=None):
    return gymnasium.make("DescentEnv-v0", render_mode=render_mode)


def make_several(num_envs, **arguments):
    return AsyncVectorEnv([make] * num_envs)


gymnasium.register("Descent-v0", make, vector_entry_point=make_several)
"""

RETRO = """
import gymnasium
import stable_retro
from gymnasium.vector import AsyncVectorEnv


def make(render_mode="rgb_array"):
    return stable_retro.make("Airstriker-Genesis-v0", render_mode=render_mode)


def make_several(num_envs, **arguments):
    return AsyncVectorEnv([make] * num_envs)


gymnasium.register("Airstriker-v0", make, vector_entry_point=make_several)
"""

PACKAGES = (
    Package("minigrid", "minigrid:MiniGrid-Empty-5x5-v0", ("ignore_observations=mission",), note="the mission is text"),
    Package(
        "miniworld",
        "miniworld:MiniWorld-OneRoom-v0",
        variables=("PYGLET_HEADLESS=true",),
        note="draws with OpenGL; with a screen it needs no variable",
    ),
    Package("flappy-bird-gymnasium", "flappy_bird_gymnasium:FlappyBird-v0", ("env.kwargs.use_lidar=false",)),
    Package("highway-env", "highway_env:highway-fast-v0"),
    Package("panda-gym", "panda_gym:PandaReach-v3", note="not repeatable: reset without a seed makes a new generator"),
    Package("pybullet-envs-gymnasium", "pybullet_envs_gymnasium:HopperBulletEnv-v0"),
    Package("popgym", "popgym:popgym-RepeatPreviousEasy-v0", ("core=gru", "core_size=64")),
    Package("gym-anytrading", "gym_anytrading:stocks-v0"),
    Package("gym-trading-env", "my_prices:make", wrapper=PRICES, note="needs a table of prices: here a random walk"),
    Package(
        "crafter", "crafter_env:Crafter", wrapper=CRAFTER, note="gym's old API: four values from step; not repeatable"
    ),
    Package("mo-gymnasium", "one_reward:make", wrapper=ONE_REWARD, note="several objectives: a wrapper weighs them"),
    Package(
        "gymnasium-robotics",
        "gymnasium_robotics:FetchReach-v4",
        algorithm="sac",
        extra=("mujoco==3.3.0",),
        note="1.4.2 fails with MuJoCo 4.0 and 3.17 (AssertionError in set_joint_qpos)",
    ),
    Package(
        "dm-control",
        "shimmy:dm_control/cartpole-balance-v0",
        extra=("shimmy[dm-control]", "mujoco<4"),
        note="1.0.50 fails with MuJoCo 4.0",
    ),
    Package("bsuite", "shimmy:bsuite/catch-v0", extra=("shimmy[bsuite]",)),
    Package(
        "vizdoom",
        "vizdoom.gymnasium_wrapper:VizdoomBasic-v1",
        note="frames of 240 x 320 pixels: `--set image_size=60,80 grayscale=true` is faster",
    ),
    Package(
        "metaworld",
        "metaworld:Meta-World/MT1",
        ("env.kwargs.env_name=reach-v3",),
        algorithm="sac",
        note="its own `sample_tasks` is not that of [meta-learning](meta-learning.md); check says so",
    ),
    Package(
        "bluesky-gym",
        "bluesky_descent:Descent-v0",
        afterwards=("numpy<2.4",),
        wrapper=BLUESKY,
        note="only one env in a process, so each gets its own; fails with NumPy 2.4 (ValueError in step)",
    ),
    Package("gym-pusht", "gym_pusht:gym_pusht/PushT-v0"),
    Package(
        "gym-aloha",
        "gym_aloha:gym_aloha/AlohaInsertion-v0",
        variables=("MUJOCO_GL=egl",),
        note="draws 480 x 640 pixels a step with OpenGL (egl, or osmesa)",
    ),
    Package("gym-xarm", "gym_xarm:gym_xarm/XarmLift-v0", note="not repeatable; installs MuJoCo 2.3"),
    Package(
        "gym-hil",
        "gym_hil:gym_hil/PandaPickCubeBase-v0",
        variables=("MUJOCO_GL=egl",),
        note="draws with OpenGL: egl, or osmesa",
    ),
    Package(
        "safety-gymnasium",
        "safety_gymnasium:SafetyPointGoal1Gymnasium-v0",
        afterwards=("gymnasium>=1.1",),
        note="its ids with Gymnasium in their names have one reward; the cost is in the infos",
    ),
    Package(
        "nle",
        "nle:NetHackScore-v0",
        ('env.kwargs.observation_keys=["glyphs","blstats"]',),
        note="all observations, the default, are slow to learn from; not repeatable",
    ),
    Package(
        "minihack",
        "minihack:MiniHack-Room-5x5-v0",
        ("ignore_observations=message",),
        afterwards=("setuptools<81",),
        note="imports pkg_resources, which newer setuptools no longer have",
    ),
    Package(
        "stable-retro",
        "retro_airstriker:Airstriker-v0",
        ("image_size=84", "grayscale=true", "frame_stack=4"),
        wrapper=RETRO,
        note="only one emulator in a process, so each gets its own",
    ),
    Package(
        "gym-super-mario-bros",
        "mario:Mario",
        ("image_size=84", "grayscale=true", "frame_stack=4"),
        afterwards=("numpy<2",),
        wrapper=MARIO,
        note="7.4.0 has gym's old API, and fails with NumPy 2 (OverflowError); later ones need Python 3.13",
    ),
    Package("citylearn", "citylearn:CityLearnEnv"),
    Package("gym-electric-motor", "gym_electric_motor:Cont-CC-PMSM-v0"),
    Package("tetris-gymnasium", "tetris_gymnasium.envs:tetris_gymnasium/Tetris"),
    Package("rware", "warehouse:make", wrapper=WAREHOUSE, note="several agents, in lists: a class makes it a world"),
    Package("lbforaging", "foraging:make", wrapper=FORAGING, note="several agents, in lists: a class makes it a world"),
    Package("myosuite", "myosuite:myoElbowPose1D6MRandom-v0"),
    Package(
        "memory-gym",
        "memory_gym:MortarMayhem-Grid-v0",
        afterwards=("gymnasium>=1.1",),
        note="requires Gymnasium 0.29, and works with the new one",
    ),
    Package(
        "fancy-gym",
        "fancy_gym:fancy/Reacher5d-v0",
        afterwards=("gymnasium>=1.1",),
        note="requires Gymnasium 0.29 and fails with 1 (it uses a wrapper that is gone)",
    ),
    Package("pyflyt", "PyFlyt.gym_envs:PyFlyt/QuadX-Hover-v4"),
    Package("mobile-env", "mobile_env:mobile-small-central-v0"),
    Package("gymnasium-2048", "gymnasium_2048:gymnasium_2048/TwentyFortyEight-v0"),
    Package("gymnasium-search-race", "gymnasium_search_race:gymnasium_search_race/SearchRace-v3"),
    Package("gymnasium-snake-game", "gymnasium_snake_game:Snake-v1"),
    Package("gym-simplegrid", "gym_simplegrid:SimpleGrid-8x8-v0"),
    Package("matrix-mdp-gym", "a_matrix:make", wrapper=MATRIX, note="needs the matrices of a decision process"),
    Package("evogym-py313", "evogym.envs:Walker-v0"),
    Package("procgen-gym", "procgen_gym:procgen_gym/procgen-coinrun-v0", untried="needs Python 3.13 or newer"),
    Package("magent2", "magent2.environments.battle_v4:parallel_env"),
    Package(
        "pogema", "pogema:Pogema-v0", afterwards=("gymnasium>=1.1",), note="requires Gymnasium 0.28 and fails with 1"
    ),
    Package(
        "carl-bench",
        "carl.envs:CARLCartPole",
        afterwards=("gymnasium>=1.1",),
        note="requires Gymnasium 0.29; 1.1.1 returns a context of another shape than its space declares",
    ),
    Package(
        "dacbench",
        "dacbench.envs:SigmoidEnv",
        extra=("torchvision",),
        note="imports torchvision, which must be of the same build as torch (CPU or CUDA)",
    ),
    Package("gym-quadruped", "quadruped:make", wrapper=QUADRUPED, note="gym's old API: reset returns no info"),
)
