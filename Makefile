# Two commands are all a newcomer needs: `make demo` and `make test`. Each makes .venv by itself.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# More options of pytest for `make test` and `make coverage`, as --ignore=FOLDER, and how many processes they have.
TESTS  :=
PROCESSES := 6

.PHONY: demo test test-all mutants coverage check lint types bench docs protos release clean help

help:
	@echo "make demo    two campaigns end to end: four hospitals, a server, a student"
	@echo "make test    the tests: about eight minutes on two cores"
	@echo "make test-all  these and the slow ones: soak, browsers, databases, every planted bug"
	@echo "make mutants  faults put back one by one, each of which a test must find"
	@echo "make coverage  all tests, and the branches that they do not take; slower by half."
	@echo "               make coverage TESTS='-m \"not slow\"' measures those of make test"
	@echo "make check   lint, format, types"
	@echo "make bench   the speeds of masked sums and of the accountant"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make protos  generate protos/pate/v1/*_pb2* anew"
	@echo "make release  dist/: sdist, wheel, bill of materials, checked in a bare environment"

# What is imported is compiled then, and kept: a quarter of the modules. To compile all takes pip a minute.
$(VENV)/.installed: pyproject.toml
	@echo "Setting up $(VENV): about two minutes and 6 GB, once."
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --no-compile --editable .
	@touch $@

$(VENV)/.tools: $(VENV)/.installed
	$(PIP) install --quiet --no-compile --editable '.[dev,postgres]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/pate demo

# Tests start hundreds of processes: without compiled modules each would compile ours again, and each process of
# tests all tests. So this holds also where the environment forbids to store them.
demo test test-all mutants coverage: export PYTHONDONTWRITEBYTECODE :=

# One thread each: linear algebra that takes all cores in every process is far slower. Campaigns of real
# processes wait more than half of their time, so there are three times as many processes of tests as two cores.
test test-all mutants coverage: export OMP_NUM_THREADS := 1
test: $(VENV)/.tools
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile -m "not slow" $(TESTS)

test-all: $(VENV)/.tools
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

mutants: $(VENV)/.tools
	$(BIN)/python -m tests.mutants

coverage: $(VENV)/.tools
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest --numprocesses $(PROCESSES) --dist loadfile --timeout 1800 $(TESTS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

check: lint types

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tools
	$(BIN)/mypy

bench: $(VENV)/.tools
	$(BIN)/python -m benchmarks cost masking
	$(BIN)/python -m benchmarks cost accounting

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.tools
	$(BIN)/python -m mkdocs build

protos: $(VENV)/.tools
	$(BIN)/python -m protos.generate

# All of a release but the upload, from what is committed. The tools have an environment of their own, as Flower
# excludes some of their versions; the bare one has the versions of deploy/constraints.txt and the wheel.
RELEASE := build/release
release:
	git diff --quiet HEAD || { echo "commit first: a release is what is committed" >&2; exit 2; }
	rm -rf dist $(RELEASE)
	mkdir -p $(RELEASE)/source && git archive HEAD | tar -x -C $(RELEASE)/source
	$(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/python -m pip install --quiet build==1.6.1 cyclonedx-bom==7.5.0 twine==7.0.0
	$(RELEASE)/tools/bin/python -m build --outdir dist $(RELEASE)/source
	$(RELEASE)/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(RELEASE)/bare
	$(RELEASE)/bare/bin/python -m pip install --quiet --require-hashes --no-deps --requirement deploy/constraints.txt
	$(RELEASE)/bare/bin/python -m pip install --quiet --no-deps dist/*.whl
	$(RELEASE)/bare/bin/python -m pip check
	cd $(RELEASE) && bare/bin/pate new trial && cd trial && ../bare/bin/pate-server check --config server.toml
	$(RELEASE)/tools/bin/cyclonedx-py environment $(RELEASE)/bare/bin/python --pyproject pyproject.toml \
	  --output-reproducible --output-file dist/federated-pate.cdx.json
	cd dist && sha256sum * > SHA256SUMS
	@echo "dist/ is ready. Tag the commit, and upload wheel and sdist: twine upload dist/*.whl dist/*.tar.gz"

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
