# Everything a fresh machine needs is Python >= 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What is run is installed as a user would, what is worked on stays as it is edited.
RUN_VENV ?= .venv-run
COMPILED ?= .compiled
CONFIG ?= breakers.yaml
ARGS ?=

# Two fifths of the CPU time of a call is saved where there are a C compiler and Python's headers;
# without them, or with COMPILE=false, the same modules are installed as they are.
COMPILE ?= $(shell $(PYTHON) -c "import os, shutil, sysconfig; \
  cc = (sysconfig.get_config_var('CC') or 'cc').split()[0]; \
  headers = os.path.join(sysconfig.get_path('include'), 'Python.h'); \
  print('true' if shutil.which(cc) and os.path.exists(headers) else 'false')")
BUILD := $(if $(filter true,$(COMPILE)),compiled,plain)
SOURCES := pyproject.toml hatch_build.py breakers.yaml $(shell find sidecar -type f ! -name '*.pyc')

.PHONY: run demo test test-compiled lint types fuzz soak bench clean

run: $(RUN_VENV)/.installed-$(BUILD) ## Run the daemon on the shipped breakers.yaml
	$(RUN_VENV)/bin/breaker-sidecar serve --config $(CONFIG) $(ARGS)

demo: $(RUN_VENV)/.installed-$(BUILD) ## Show in half a minute what it is for
	$(RUN_VENV)/bin/breaker-sidecar demo

test: $(VENV)/.tests ## Run the whole suite
	$(BIN)/python -m pytest $(ARGS)

test-compiled: $(VENV)/.tests $(COMPILED)/.made ## Run the suite on the compiled modules
	cd $(COMPILED) && SIDECAR_COMPILED=1 $(abspath $(BIN))/python -m pytest $(ARGS)

lint: $(VENV)/.dev ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## Types
	$(BIN)/mypy

fuzz: $(VENV)/.tests ## Hostile input, ten minutes a target
	$(BIN)/python -m tests.fuzz --seconds 600 $(ARGS)

soak: $(VENV)/.tests ## An hour's work in ten minutes, and books that balance
	$(BIN)/python -m bench.soak $(ARGS)

bench: $(VENV)/.tests $(COMPILED)/.made ## Measure beside the peers that are installed
	cd $(COMPILED) && $(abspath $(BIN))/python -m bench $(ARGS)

$(VENV)/bin/python $(RUN_VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say make PYTHON=...")'
	$(PYTHON) -m venv $(@D)/..
	$@ -m pip install --quiet --upgrade pip

dist/compiled/.built: HOOK = true
dist/plain/.built: HOOK = false
dist/compiled/.built dist/plain/.built: $(RUN_VENV)/bin/python $(SOURCES)
	rm -rf $(@D)
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=$(HOOK) \
	  $(RUN_VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(@D) .
	touch $@

$(RUN_VENV)/.installed-compiled: $(RUN_VENV)/bin/python $(SOURCES)
	@echo "compiling what every call runs: a minute, once (COMPILE=false leaves it out)"
	@$(MAKE) --no-print-directory dist/compiled/.built || { \
	  echo "it cannot be compiled here, as told above: it is installed as it is"; \
	  $(MAKE) --no-print-directory dist/plain/.built; }
	$(call install,$$(if [ -e dist/compiled/.built ]; then echo compiled; else echo plain; fi))

$(RUN_VENV)/.installed-plain: dist/plain/.built
	@echo "not compiled: COMPILE=$(COMPILE), or no C compiler and headers of Python were found"
	$(call install,plain)

define install
	wheel=$$(ls dist/$(1)/*.whl) && \
	  $(RUN_VENV)/bin/python -m pip install --quiet $$wheel && \
	  $(RUN_VENV)/bin/python -m pip install --quiet --no-deps --force-reinstall $$wheel
	rm -f $(RUN_VENV)/.installed-*
	touch $@
endef

# The sources with the extension modules of the wheel beside them, for the suite and for bench/.
$(COMPILED)/.made: dist/compiled/.built $(shell git ls-files tests bench 2>/dev/null)
	rm -rf $(COMPILED)
	mkdir $(COMPILED)
	git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C $(COMPILED)
	$(PYTHON) -c "import sys, zipfile; wheel = zipfile.ZipFile(sys.argv[1]); \
	  wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.endswith('.so')])" \
	  dist/compiled/*.whl $(COMPILED)
	touch $@

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.tests: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group tests
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

clean:
	rm -rf $(VENV) $(RUN_VENV) $(COMPILED) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
