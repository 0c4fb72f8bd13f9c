# The decision service: docker build -t newcomer . ; compose.yaml runs it with PostgreSQL (docs/how-to/production.md).
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
    NUMBA_CACHE_DIR=/var/cache/newcomer
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY src src
# A file named with -c installs what its own -r lines name: the pins go in without them.
RUN sed '/^-r/d' requirements/test.txt > pins.txt \
    && pip install -c requirements/demo.txt -c pins.txt '.[serve,client]' && rm -rf /build/src \
    && useradd --system --create-home newcomer && mkdir -p /var/cache/newcomer /data \
    && chown newcomer /var/cache/newcomer /data

USER newcomer
WORKDIR /data
# The inner loops, compiled now and not at the first start; on another kind of processor they are compiled again.
RUN python -m newcomer.compile_cache

VOLUME /data
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8321/healthz', timeout=2)"]
ENTRYPOINT ["newcomer"]
CMD ["serve", "/data/model.newcomer", "--host", "0.0.0.0"]
