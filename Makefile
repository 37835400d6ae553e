# Needs only python3 (3.11 or later), pip and make: every target sets up what it uses, once.
#
#   make demo          export the super-resolution network, prove it, enlarge a cat with it
#   make demo-quant    train a network on handwritten digits, quantise it in three ways, and print what each costs
#   make demo-generate   train a small language model, make a package of it, and let that write
#   make test          ruff, mypy and all quick tests
#   make test-torch TORCH=2.15.0   the quick tests with another PyTorch; WRITE=1 enters what came of it into docs/versions.md
#   make test-avx2     tests of quantised numbers on an emulated processor that has AVX2 alone; needs qemu-user (Debian)
#   make test-versions   the same for the versions of docs/versions.md, the oldest and the newest among them
#   make test-models   whole models of timm and transformers, at many opsets
#   make test-generate   language models of transformers with their caches, token for token; writes docs/generation.md
#   make test-generate-packages   packages of every generative class of transformers; goes on where it was stopped
#   make test-generate-forms   packages of five families at every opset, and with ONNX Runtime's own operators
#   make test-libs     networks of other libraries, in an environment of its own; writes docs/libraries.md
#   make test-ops      PyTorch's own operator database; writes docs/torch-operators.md
#   make test-opsets   onnx's own tests at many opsets; writes docs/opsets.md
#   make test-paddle   the networks of paddle.vision, at many opsets; writes docs/paddle-models.md
#   make docs-paddle   every Paddle operator at many opsets; writes docs/paddle-operators.md
#   make fixtures      the Paddle programs that the tests read, anew; by Paddle 3.3.1 and 2.6.2
#   make chromium      the browser that the report page is tested in, where it is missing (Debian)
#   make bench         time, memory, latency and growth beside torch.onnx.export and paddle2onnx; writes docs/bench.md, docs/locate.md
#   make bench-generate  tokens per second beside optimum-onnx and onnxruntime-genai's builder; writes docs/bench.md
#   make bench-faults  faults planted in files of small networks: does the proof stop them all? writes docs/faults.md
#   make bench-integers  quantised layers in ONNX Runtime on this processor; writes docs/quantised.md
#   make bench-quant   calibrated int8 beside ONNX Runtime's own tool; writes docs/quantise.md
#   make test-ray      a zoo and batch inference on a real local Ray, workers killed; writes docs/scale.md
#   make test-web      ten files in headless Chromium by ONNX Runtime Web; writes docs/web.md; needs npm
#   make bench-optimise  tonnx optimise beside onnxslim and onnxsim; writes docs/optimise.md
#   make site          the documentation as a site, in site/build; make test-site walks its links and runs its code
#   make dist          the sdist and the wheel, tried in an empty environment

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install -qq --disable-pip-version-check
# What the development environment is made of; pyproject.toml says what else will do.
DEV_TORCH := torch==2.13.0
DEV_ONNX  := onnx==1.23.* onnx-ir==1.1.* onnxruntime==1.31.*
PADDLE := paddlepaddle==3.3.1

# make test-torch TORCH=2.8.0 PYTHON=python3.10 WITH="onnx==1.18.0 onnxruntime==1.22.0"
TORCH  ?= 2.15.0
SPACE  := $(subst ,, )
ENV     = .venv-torch-$(TORCH)$(if $(WITH),-$(subst $(SPACE),-,$(subst =,,$(WITH))))

P2O    := .venv-paddle2onnx
P2     := .venv-paddle2
LIBS   := .venv-libs
RAYENV := .venv-ray

DEV    := $(VENV)/.stamp-dev
LANGUAGE := $(VENV)/.stamp-language
MODELS := $(VENV)/.stamp-models
STOCK  := $(P2O)/.stamp-paddle2onnx
PADDLE2 := $(P2)/.stamp-paddle2
LIBRARIES := $(LIBS)/.stamp-libs
RAY    := $(RAYENV)/.stamp-ray
WEB    := .web/.stamp
SLIM   := .venv-slim/.stamp
OPTIMUM := .venv-optimum/.stamp
GENAI  := .venv-genai/.stamp
SITE   := .venv-site/.stamp
BUILD  := .venv-dist/.stamp-build

.PHONY: chromium demo test lint test-models docs-models test-ops test-opsets test-paddle docs-paddle bench bench-faults bench-integers bench-quant clean
.PHONY: bench-optimise site test-ray test-site test-web
.PHONY: bench-generate demo-generate demo-quant dist fixtures test-generate test-generate-forms test-avx2 test-generate-packages test-torch test-versions

demo: $(DEV)
	@$(PY) examples/super_resolution/demo.py

demo-quant: $(DEV)
	@$(PY) examples/quantised_digits/demo.py

demo-generate: $(LANGUAGE)
	@$(PY) examples/language_model/demo.py

test: lint
	@$(PY) -m pytest -n 2 -m "not models and not opinfo and not paddle_models"

lint: $(DEV)
	@$(PY) -m ruff check .
	@$(PY) -m mypy

test-torch: $(ENV)/.stamp
	@$(ENV)/bin/python -m tests.versions.suite -n 2 $(if $(WRITE),--write) $(ONLY)

# Integer kernels of processors without VNNI saturate, which no other processor shows. Half an hour.
INTEGERS := tests/lowering/test_quantized.py tests/lowering/test_quant.py tests/passes/test_unsigned.py \
	tests/proof/test_saturation.py tests/legalise/test_quant.py tests/legalise/test_decompose_quant.py tests/quant \
	tests/linger tests/frontends/paddle/test_operators.py
test-avx2: $(DEV)
	@command -v qemu-x86_64 >/dev/null || { apt-get update -qq && apt-get install -y -qq qemu-user; } >/dev/null
	@OMP_NUM_THREADS=1 qemu-x86_64 -cpu max $(PY) -m pytest -n 0 $(INTEGERS)

# About 5 GB for each PyTorch: builds for the CPU alone are not on PyPI. Needs pythonX.Y of each version on the path.
test-versions:
	@$(MAKE) test-torch WRITE=1 TORCH=2.15.0 PYTHON=python3.13
	@$(MAKE) test-torch WRITE=1 TORCH=2.13.0 PYTHON=python3.11 WITH="paddlepaddle==3.3.1"
	@$(MAKE) test-torch WRITE=1 TORCH=2.10.0 PYTHON=python3.12
	@$(MAKE) test-torch WRITE=1 TORCH=2.8.0 PYTHON=python3.11
	@$(MAKE) test-torch WRITE=1 TORCH=2.8.0 PYTHON=python3.10 \
		WITH="onnx==1.18.0 onnx-ir==1.0.0 onnxruntime==1.22.0 paddlepaddle==3.0.0"

test-models: $(MODELS)
	@$(PY) -m pytest -m models tests/models tests/generation

# The same as a table: docs/models.md. For some of them: make docs-models ONLY="--models bert,gpt2"
docs-models: $(MODELS)
	@$(PY) -m tests.models.opsets --write docs/models.md $(ONLY)

# For some of them, or for all that transformers has: make test-generate ONLY="--families llama,gpt2"
test-generate: $(MODELS)
	@$(PY) -m tests.generation.suite --write docs/generation.md $(ONLY)

# Opsets and ONNX Runtime's own operators: docs/generation-forms.md
test-generate-forms: $(MODELS)
	@$(PY) -m tests.generation.forms --results .venv/forms.json --write docs/generation-forms.md $(ONLY)

test-generate-packages: $(MODELS)
	@$(PY) -m tests.generation.packages --results .venv/packages.json --write docs/generation.md $(ONLY)

# For some of them, beside torch's own exporters: make test-libs ONLY="--only monai --exporters tonnx,dynamo,classic"
test-libs: $(LIBRARIES)
	@$(LIBS)/bin/python -m tests.libraries.suite --write $(ONLY)

# Some of it: make test-ray ONLY="--only killed,scaling"
test-ray: $(RAY)
	@PYTHONPATH=. $(RAYENV)/bin/python -m tests.zoo.ray_suite --write $(ONLY)

test-ops: $(DEV)
	@$(PY) -m tests.opinfo.suite --write
	@$(PY) -m tests.opinfo.lowest --write

test-opsets: $(DEV)
	@$(PY) -m tests.legalise.suite --write

# The same as a table: docs/paddle-models.md. For some of them: make test-paddle ONLY="--models LeNet --opsets 9"
test-paddle: $(DEV)
	@$(PY) -m tests.frontends.paddle.models --write docs/paddle-models.md $(ONLY)

docs-paddle: $(DEV)
	@$(PY) -m tests.frontends.paddle.table --write

# Elsewhere, and only some of them: make fixtures TO=/tmp/fixtures ONLY="quantized flow"
# What each file is: tests/frontends/paddle/fixtures/README.md
TO ?= tests/frontends/paddle/fixtures
fixtures: $(DEV) $(PADDLE2)
	@for part in $(or $(ONLY),fixtures operators flow quantized); do \
		echo "fixtures: $$part"; \
		PYTHONPATH=. $(PY) tests/frontends/paddle/make_$$part.py --to $(TO) && \
		FIXTURE_KIND=v2 PYTHONPATH=. $(P2)/bin/python tests/frontends/paddle/make_$$part.py --to $(TO) || exit 1; \
	done

bench: $(MODELS) $(STOCK)
	@$(PY) bench/export_speed.py --write docs/bench.md
	@$(PY) bench/peak_memory.py --write docs/bench.md
	@$(PY) bench/latency.py --paddle2onnx $(P2O)/bin/paddle2onnx --write docs/bench.md
	@$(PY) bench/growth.py --write docs/bench.md --picture docs/growth.svg
	@$(PY) bench/legalise_speed.py
	@$(PY) bench/paddle_speed.py --paddle2onnx $(P2O)/bin/paddle2onnx --write docs/bench.md
	@$(PY) bench/locate.py --foreign --write docs/locate.md

# Environments of their own: each peer brings another transformers.
bench-generate: $(MODELS) $(OPTIMUM) $(GENAI)
	@$(PY) bench/generate.py --optimum .venv-optimum/bin/python --builder .venv-genai/bin/python --write docs/bench.md

bench-faults: $(DEV)
	@$(PY) bench/planted_faults.py --write docs/faults.md $(ONLY)

bench-integers: $(DEV)
	@$(PY) bench/integer_kernels.py --write docs/quantised.md

bench-quant: $(MODELS)
	@$(PIP) scikit-learn sympy
	@$(PY) -m pip download -qq --disable-pip-version-check --no-deps -d $(VENV)/ocr rapidocr-onnxruntime==1.4.4
	@$(PY) -m zipfile -e $(VENV)/ocr/rapidocr_onnxruntime-1.4.4-*.whl $(VENV)/ocr
	@$(PY) bench/quantise.py --write docs/quantise.md \
		--ocr $(VENV)/ocr/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx
	@$(PIP) --no-deps onnxconverter-common
	@$(PY) -W ignore bench/half.py --models $(VENV)/ocr/rapidocr_onnxruntime/models/*infer.onnx --write docs/quantise.md

test-web: $(DEV) $(WEB) chromium
	@$(PY) -m tests.web.suite --ort .web/node_modules/onnxruntime-web/dist --write docs/web.md

bench-optimise: $(MODELS) $(SLIM)
	@$(PY) bench/optimise.py --anchors .venv-slim/bin/python --write docs/optimise.md $(ONLY)
	@$(PY) bench/optimise.py --anchors .venv-slim/bin/python --write docs/optimise.md --dynamic $(ONLY)

# --- the site -----------------------------------------------------------------------------------------------

site: $(SITE)
	@.venv-site/bin/python -m mkdocs build --strict -q -f site/mkdocs.yml

test-site: site $(DEV)
	@$(PY) -m tests.site.walk site/build

# A release says where the README's links lead: make dist PROJECT_URL=https://host/owner/name PROJECT_REF=v1.0
dist: $(BUILD)
	@.venv-dist/bin/python tools/dist.py --torch $(DEV_TORCH) $(if $(PROJECT_URL),--url $(PROJECT_URL) --ref $(PROJECT_REF))

clean:
	rm -rf $(VENV) $(P2O) $(P2) $(LIBS) $(RAYENV) .venv-slim .venv-site .venv-optimum .venv-genai .web site/build .venv-dist .venv-torch-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis examples/*/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +

chromium:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null

# --- set-up -------------------------------------------------------------------------------------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "these targets need Python 3.11 or later; this is $$($(PYTHON) -V). Try: make PYTHON=python3.12"; exit 1; }
	@echo "setup: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch goes first and pinned: left to the resolver, an open range fetches gigabytes of CUDA packages.
$(DEV): pyproject.toml | $(PY)
	@echo "setup: installing $(DEV_TORCH)"
	@$(PIP) $(DEV_TORCH)
	@echo "setup: installing $(PADDLE)"
	@$(PIP) $(PADDLE)
	@echo "setup: installing tonnx and its tools"
	@$(PIP) $(DEV_TORCH) $(DEV_ONNX) -e ".[torch,paddle,image,dev]"
	@$(PY) -m compileall -q src/tonnx
	@touch $@

$(ENV)/.stamp:
	@echo "setup: installing torch $(TORCH) $(WITH) into $(ENV)"
	@$(PYTHON) -m venv $(ENV)
	@$(ENV)/bin/python -m pip install -qq --disable-pip-version-check torch==$(TORCH) $(WITH) -e ".[image,dev]"
	@touch $@

$(LANGUAGE): $(DEV)
	@echo "setup: installing transformers"
	@$(PIP) $(DEV_TORCH) $(DEV_ONNX) transformers tokenizers safetensors
	@touch $@

$(MODELS): $(DEV)
	@echo "setup: installing timm, transformers and torchvision"
	@$(PIP) $(DEV_TORCH) $(DEV_ONNX) torchvision==0.28.0 -e ".[torch,models]"
	@$(PY) -c 'import torch; assert torch.__version__.split("+")[0] == "2.13.0", torch.__version__'
	@touch $@

# Those of the second file name another torch, or much that their networks do not need. torchaudio's compiled operators
# are built for CUDA, and its import fails where they cannot be loaded.
$(LIBRARIES): tests/libraries/requirements.txt tests/libraries/requirements-alone.txt
	@echo "setup: installing the libraries of tests/libraries into $(LIBS)"
	@$(PYTHON) -m venv $(LIBS)
	@$(LIBS)/bin/python -m pip install -qq --disable-pip-version-check $(DEV_TORCH)
	@$(LIBS)/bin/python -m pip install -qq --disable-pip-version-check $(DEV_TORCH) $(DEV_ONNX) onnxscript -e ".[torch]" \
		-r tests/libraries/requirements.txt
	@$(LIBS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r tests/libraries/requirements-alone.txt
	@rm -f $(LIBS)/lib/python3*/site-packages/torchaudio/lib/*.so
	@touch $@

$(RAY):
	@echo "setup: installing Ray into $(RAYENV)"
	@$(PYTHON) -m venv $(RAYENV)
	@$(RAYENV)/bin/python -m pip install -qq --disable-pip-version-check $(DEV_TORCH)
	@$(RAYENV)/bin/python -m pip install -qq --disable-pip-version-check $(DEV_TORCH) $(DEV_ONNX) pytest \
		-e ".[torch,image,ray]"
	@touch $@

# The stock converter pins an old onnx, so it lives alone. It fetches onnxruntime by itself otherwise, while it is timed.
$(STOCK):
	@echo "setup: installing paddle2onnx 2.1.0 into $(P2O)"
	@$(PYTHON) -m venv $(P2O)
	@$(P2O)/bin/python -m pip install -qq --disable-pip-version-check paddle2onnx==2.1.0 $(PADDLE) \
		packaging setuptools onnxruntime onnx_graphsurgeon
	@touch $@

# The last Paddle that writes every operator in the old format. It needs numpy 1, so it lives alone, too.
$(PADDLE2):
	@echo "setup: installing paddlepaddle 2.6.2 into $(P2)"
	@$(PYTHON) -m venv $(P2)
	@$(P2)/bin/python -m pip install -qq --disable-pip-version-check paddlepaddle==2.6.2 'numpy<2' setuptools
	@touch $@

# The browser's runtime.
$(WEB):
	@echo "setup: installing onnxruntime-web into .web"
	@npm install --silent --no-audit --no-fund --prefix .web onnxruntime-web@1.30.0
	@touch $@

# Simplifiers that pin versions of their own.
$(OPTIMUM):
	@echo "setup: installing optimum-onnx into .venv-optimum"
	@$(PYTHON) -m venv .venv-optimum
	@.venv-optimum/bin/python -m pip install -qq --disable-pip-version-check "optimum-onnx[onnxruntime]==0.1.0"
	@touch $@

$(GENAI):
	@echo "setup: installing onnxruntime-genai and what its builder needs into .venv-genai"
	@$(PYTHON) -m venv .venv-genai
	@.venv-genai/bin/python -m pip install -qq --disable-pip-version-check onnxruntime-genai==0.18.0 torch transformers==5.23.0 onnx onnx-ir
	@touch $@

$(SLIM):
	@echo "setup: installing onnxslim and onnxsim into .venv-slim"
	@$(PYTHON) -m venv .venv-slim
	@.venv-slim/bin/python -m pip install -qq --disable-pip-version-check onnxslim==0.1.98 onnxsim==0.8.1 onnx==1.23.* onnxruntime==1.31.*
	@touch $@

$(SITE): site/requirements.txt
	@echo "setup: installing MkDocs into .venv-site"
	@$(PYTHON) -m venv .venv-site
	@.venv-site/bin/python -m pip install -qq --disable-pip-version-check -r site/requirements.txt
	@touch $@

$(BUILD):
	@echo "setup: installing build and twine into .venv-dist"
	@$(PYTHON) -m venv .venv-dist
	@.venv-dist/bin/python -m pip install -qq --disable-pip-version-check build twine "readme_renderer[md]"
	@touch $@
