# The image of workers with a real CLI, laid on any task image of the Debian family: git, curl, certificates, the CLI.
# No Python is needed. TASK is what the team's programs are built and tested in. The build context holds the CLI's npm
# package as `package/`; PROGRAM is its binary below that, NAME what a worker calls it.
ARG TASK=debian:bookworm-slim
FROM ${TASK}
ARG NAME
ARG PROGRAM
USER root
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates curl git >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*
RUN grep -q '^worker:' /etc/passwd \
 || { echo "worker:x:10000:10000::/nonexistent:/bin/sh" >> /etc/passwd && echo "worker:x:10000:" >> /etc/group; }
COPY package/ /opt/agensh/cli/
RUN ln -s "/opt/agensh/cli/${PROGRAM}" "/usr/local/bin/${NAME}"
USER 10000:10000
