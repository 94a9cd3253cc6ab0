# The image of the board service, the gateway, provisioning and the node host.
# With the target `worker-scripted` also that of rule-based workers, who need the same Python.
# Build from the root of the repository; `agensh up` does it when the image is missing.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS service
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates curl git >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*
COPY requirements.lock /opt/agensh/src/
RUN python3 -m venv /opt/agensh/venv \
 && /opt/agensh/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes -r /opt/agensh/src/requirements.lock
COPY . /opt/agensh/src/
RUN /opt/agensh/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check hatchling \
 && /opt/agensh/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation /opt/agensh/src \
 && /opt/agensh/venv/bin/pip uninstall --quiet --yes hatchling \
 && rm -rf /opt/agensh/src
ENV PATH=/opt/agensh/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1
WORKDIR /

FROM service AS worker-scripted
RUN echo "worker:x:10000:10000::/nonexistent:/bin/sh" >> /etc/passwd && echo "worker:x:10000:" >> /etc/group
USER 10000:10000

FROM service
