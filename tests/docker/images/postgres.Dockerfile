# Stands in for postgres:16 where there is no image registry: PostgreSQL from Debian, with the variables of the official image.
ARG BASE
FROM ${BASE}
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null \
 && rm -rf /var/lib/apt/lists/* && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/
COPY postgres-start /usr/local/bin/
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["postgres-start"]
