# Stands in for mysql:8.4 where there is no image registry: MariaDB from Debian, with the variables of the official image.
ARG BASE
FROM ${BASE}
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server >/dev/null \
 && rm -rf /var/lib/mysql/* /var/lib/apt/lists/* && install -d -o mysql -g mysql /run/mysqld
COPY mysql-start /usr/local/bin/
VOLUME /var/lib/mysql
ENTRYPOINT ["mysql-start"]
