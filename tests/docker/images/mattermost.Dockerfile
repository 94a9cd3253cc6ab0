# Stands in for Mattermost's team edition where there is no image registry: the embedded chat, empty at first, whose
# first account becomes its administrator.
ARG SERVICE
FROM ${SERVICE}
COPY mattermost.py /usr/local/bin/
VOLUME /mattermost/data
CMD ["python", "/usr/local/bin/mattermost.py"]
