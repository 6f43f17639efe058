# RMSNorm Lab on a server; docs/deploy.md says how. For an NVIDIA GPU: --build-arg DEVICE=cuda
FROM python:3.11.14-slim-bookworm

ARG DEVICE=cpu

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    RMSNORM_LAB_CACHE=/cache \
    HF_HOME=/cache/huggingface \
    MODELSCOPE_CACHE=/cache/modelscope \
    RMSNORM_LAB_PRESET=public

RUN useradd --create-home --uid 1000 lab && install -d -o lab -g lab /cache

WORKDIR /app

# The CPU's torch first: requirements.txt alone would bring several GB for CUDA.
COPY requirements.txt ./
RUN if [ "$DEVICE" = cpu ]; then \
        pip install "$(grep '^torch==' requirements.txt)" --index-url https://download.pytorch.org/whl/cpu; \
    fi && \
    pip install -r requirements.txt

COPY app.py LICENSE NOTICE ./
COPY .streamlit ./.streamlit
COPY model_probe ./model_probe
COPY viz ./viz
COPY pages ./pages
RUN python -m compileall -q app.py model_probe viz pages

USER 1000
VOLUME /cache
EXPOSE 8501

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8501, timeout=4); c.request('GET', '/_stcore/health'); raise SystemExit(c.getresponse().status != 200)"]

# Told an address to print, it asks no service on the internet for its own.
CMD ["streamlit", "run", "app.py", "--server.address", "0.0.0.0", "--server.port", "8501", "--server.headless", "true", "--browser.serverAddress", "localhost"]
