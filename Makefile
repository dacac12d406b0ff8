# make demo    train CartPole, evaluate and plot it; says what to type next
# make test    the tests that each change must pass; make test-all: all tests, and hours of long runs
# make check   lint, format and types
# make docs    the documentation as a site, in build/site
# Each first makes .venv, unless it is there. Another Python: make PYTHON=python3.12 test

PYTHON ?= python3
VENV ?= .venv
EXTRAS = atari,mujoco,box2d,video,dev,docs
BIN = $(VENV)/bin
READY = $(VENV)/.offbeat-is-installed

.PHONY: demo test test-all check format docs bench steps-to-score scores exactness soak worlds constraints clean

demo: $(READY)
	@OFFBEAT=$(BIN)/offbeat examples/demo.sh

# Each of pytest's processes computes on one thread: with more, they would only wait for each other. There is one more
# than there are cores, as tests often wait; all tests of a file, and all that share a Ray cluster, run in one. If one ends
# in a test that takes too long, pytest-xdist would wait for its other tests forever, so the run then fails at once.
# Bytecode is kept even where PYTHONDONTWRITEBYTECODE is set: else each of hundreds of processes compiles all modules.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet \
	--numprocesses $$(( $(CORES) < 8 ? $(CORES) + 1 : 8 )) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: $(READY)
	@$(PYTEST) -m "not thorough" $(ARGS)

# Some parts alone: make test ARGS='-m "chaos and not thorough"', or exact, learning, docs, ray.
test-all: $(READY)
	@$(PYTEST) $(ARGS)
	@$(BIN)/python -m benchmarks.exactness
	@$(BIN)/python -m benchmarks.soak

check: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

# Strict: a link that leads nowhere, or a docstring that cannot be read, is an error. Nothing is fetched.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site begins at build/site/index.html"

# Needs the peers' own environments: see benchmarks/README.md, which tells of the next ones too.
bench: $(READY)
	@$(BIN)/python -m benchmarks.speed $(ARGS)

steps-to-score: $(READY)
	@$(BIN)/python -m benchmarks.steps_to_score $(ARGS)

scores: $(READY)
	@$(BIN)/python -m benchmarks.scores $(ARGS)

exactness: $(READY)
	@$(BIN)/python -m benchmarks.exactness $(ARGS)

soak: $(READY)
	@$(BIN)/python -m benchmarks.soak $(ARGS)

# Packages of envs, each in an environment of its own; hours for all: make worlds ARGS="minigrid vizdoom"
worlds: $(READY)
	@$(BIN)/python -m benchmarks.worlds $(ARGS)

# To move to newer versions: upgrade them in .venv, run the tests, then write down what is there.
constraints: $(READY)
	@{ echo "# Exact versions that the tests pass with (Python 3.11). Written by: make constraints"; \
	  $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > constraints.txt

clean:
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	  "offbeat needs Python 3.11 or newer, and '$(PYTHON)' is not one. Type: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "Installing offbeat and what it needs into $(VENV): once, a few minutes."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install $$([ -t 2 ] || echo --quiet --quiet) --constraint constraints.txt --editable ".[$(EXTRAS)]"
	@touch $@
