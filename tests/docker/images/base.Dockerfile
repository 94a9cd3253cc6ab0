# Debian with what the tests need in a worker's container: a compiler for the task, and tools that try to read a program.
ARG DEBIAN
FROM ${DEBIAN}
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev gdb procps >/dev/null \
 && rm -rf /var/lib/apt/lists/*
