# Bailing in two stages: the first compiles, the second holds only what runs.
# docs/operations/install.md says how to build and start it, and what of it was not exercised.

FROM python:3.11.14-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc pkg-config libmariadb-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/venv
COPY requirements/mysql.lock /tmp/mysql.lock
RUN /opt/venv/bin/python -m pip install --no-cache-dir --require-hashes --requirement /tmp/mysql.lock
COPY manage.py pyproject.toml /srv/bailing/
COPY kernel /srv/bailing/kernel
COPY console /srv/bailing/console
COPY templates /srv/bailing/templates
COPY static /srv/bailing/static
RUN cd /srv/bailing \
    && BAILING_STATIC_ROOT=/srv/static /opt/venv/bin/python manage.py collectstatic --no-input \
    && /opt/venv/bin/python -m compileall -q kernel console

FROM python:3.11.14-slim-bookworm
# openssl is for `manage.py install`, libmariadb3 for the database driver.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libmariadb3 openssl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin bailing \
    && install -d -o bailing -g bailing -m 0700 /var/lib/bailing
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv /srv
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BAILING_VAR_DIR=/var/lib/bailing \
    BAILING_STATIC_ROOT=/srv/static
WORKDIR /srv/bailing
USER 10001:10001
VOLUME ["/var/lib/bailing"]
EXPOSE 8000
# Alive, not ready: a database that is away must not make the supervisor kill what waits for it.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
CMD ["python", "-m", "uvicorn", "console.asgi:application", \
    "--http", "console.protocol:BoundedProtocol", "--loop", "uvloop", "--no-access-log", \
    "--host", "0.0.0.0", "--port", "8000"]
