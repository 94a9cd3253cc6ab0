# Stands in for gitea/gitea where there is no image registry: the embedded forge, with the one command of Gitea's that
# provisioning calls.
ARG SERVICE
FROM ${SERVICE}
RUN echo "git:x:1000:1000::/data:/bin/sh" >> /etc/passwd && echo "git:x:1000:" >> /etc/group && install -d -o 1000 -g 1000 /data
COPY gitea gitea.py /usr/local/bin/
VOLUME /data
CMD ["gitea", "web"]
