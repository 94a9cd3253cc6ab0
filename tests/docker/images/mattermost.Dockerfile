# Stands in for Mattermost's team edition where there is no image registry: the embedded chat, empty at first, whose
# first account becomes its administrator. With the account and the volumes of the image that it stands in for.
ARG SERVICE
FROM ${SERVICE}
COPY mattermost.py /usr/local/bin/
COPY mmctl /mattermost/bin/
RUN cd /mattermost && mkdir -p client/plugins config data logs plugins && chown -R 2000:2000 .
USER 2000
VOLUME ["/mattermost/data", "/mattermost/logs", "/mattermost/config", "/mattermost/plugins", "/mattermost/client/plugins"]
CMD ["python", "/usr/local/bin/mattermost.py"]
