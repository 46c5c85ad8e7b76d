# Every target sets up what it needs: a Python 3.11 or newer, and nothing else, is assumed.
PYTHON ?= python3

ENV := .venv
TEST := .venv-test
VLLM := .venv-vllm
SGLANG := .venv-sglang

help: ## list the entry points
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "make %-12s %s\n", $$1, $$2}'

fuzz: $(ENV)/ready ## the main job: this project's allocator, both engines, 30 seconds
	$(ENV)/bin/kvoracle fuzz --allocator impl --engine both --budget 30s

test: $(TEST)/ready ## lint, types and all tests: SGLang's real allocators, proofs, kernels interpreted
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy
	$(TEST)/bin/python -m pytest -q

mutants: $(ENV)/ready ## show that both engines catch every mutant
	$(ENV)/bin/kvoracle mutants

bench: $(TEST)/ready ## speeds, measured, SGLang's beside ours (vLLM's: kvoracle bench where it is installed)
	$(TEST)/bin/python -m pytest -q -s tests/bench --benchmark-enable --benchmark-only --benchmark-timer=time.process_time --benchmark-columns=min,median,iqr,rounds

fuzz-vllm: $(VLLM)/ready ## vLLM's KVCacheManager and BlockPool, a minute each (2.4 GB to install)
	VLLM_TARGET_DEVICE=cpu HF_HUB_OFFLINE=1 $(VLLM)/bin/kvoracle fuzz --allocator vllm --budget 60s
	VLLM_TARGET_DEVICE=cpu HF_HUB_OFFLINE=1 $(VLLM)/bin/kvoracle fuzz --allocator vllm-blockpool --budget 60s

fuzz-sglang: $(SGLANG)/ready ## SGLang's paged and token allocators, a minute each (2.3 GB to install)
	$(SGLANG)/bin/kvoracle fuzz --allocator sglang --budget 60s
	$(SGLANG)/bin/kvoracle fuzz --allocator sglang-token --budget 60s

gpu: $(TEST)/ready ## the kernels on a GPU: bytes, then times; says why where it skips
	TRITON_DEBUG=1 $(TEST)/bin/python -m pytest -q -rs tests/gpu/test_on_gpu.py
	@if command -v compute-sanitizer > /dev/null; then \
		PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --error-exitcode 1 \
			$(TEST)/bin/python -m pytest -q tests/gpu/test_on_gpu.py -k "calls and triton"; \
	else echo "skipped: memcheck, for compute-sanitizer is not here"; fi
	$(TEST)/bin/python -m kvoracle.model.adapters.gpu_times --json docs/gpu-figures.json

clean: ## remove the environments and caches
	rm -rf .venv* .mypy_cache .ruff_cache .hypothesis build *.egg-info

$(ENV)/ready: pyproject.toml
	$(call new_environment,$(ENV))
	$(ENV)/bin/pip install -q -e .
	touch $@

$(TEST)/ready: pyproject.toml
	$(call new_environment,$(TEST))
	$(TEST)/bin/pip install -q torch==2.13.0
	$(TEST)/bin/pip install -q --no-deps triton==3.9.0
	$(TEST)/bin/pip install -q --no-deps sglang==0.5.23
	$(TEST)/bin/pip install -q -e '.[test]'
	touch $@

$(VLLM)/ready: pyproject.toml
	$(call new_environment,$(VLLM))
	$(VLLM)/bin/pip install -q torch==2.13.0
	$(VLLM)/bin/pip install -q --no-deps vllm==0.33.0 xgrammar==0.2.8
	$(VLLM)/bin/pip install -q -r docs/engines/vllm.txt
	$(VLLM)/bin/pip install -q -e .
	touch $@

$(SGLANG)/ready: pyproject.toml
	$(call new_environment,$(SGLANG))
	$(SGLANG)/bin/pip install -q torch==2.13.0
	$(SGLANG)/bin/pip install -q --no-deps sglang==0.5.23
	$(SGLANG)/bin/pip install -q -r docs/engines/sglang.txt
	$(SGLANG)/bin/pip install -q -e .
	touch $@

define new_environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "kvoracle needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..."; exit 2; }
$(PYTHON) -m venv --clear $(1)
endef

.PHONY: help fuzz test mutants bench fuzz-vllm fuzz-sglang gpu clean
.DEFAULT_GOAL := help
