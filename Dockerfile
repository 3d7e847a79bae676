# The service. BASE is any Debian-based image with Python 3.11 or newer as `python3` and its venv
# module: docker build --build-arg BASE=python:3.12-slim-trixie .
#
# PACKAGES are Debian packages to add. With these the image can end Slurm jobs with an exit code
# (docs/install.md), unless BASE has libslurm; without them it is 125 MB smaller:
#   docker build --build-arg PACKAGES="slurm-wlm-jwt-plugin systemd-standalone-sysusers" .
#
# Without a package index in reach, put the wheels beside this file first:
#   pip download --only-binary=:all: --dest wheels -r requirements.txt
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS packages
WORKDIR /src
COPY requirements.txt wheel[s] ./
# The compiled classes of the Kubernetes API are a third of the image and are never loaded.
RUN python3 -m venv /opt/sluice \
 && if ls *.whl >/dev/null 2>&1; then set -- --no-index --find-links .; fi \
 && /opt/sluice/bin/pip install --no-cache-dir --disable-pip-version-check "$@" \
      -r requirements.txt \
 && /opt/sluice/bin/pip uninstall --yes --quiet pip \
 && find /opt/sluice -path '*/kubernetes/*client/*/__pycache__/*' ! -name '__init__*' -delete

FROM ${BASE}
ARG PACKAGES=""
RUN if [ -n "$PACKAGES" ]; then \
      apt-get update \
      && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $PACKAGES \
      && rm -rf /var/lib/apt/lists/*; \
    fi
LABEL org.opencontainers.image.title="Sluice" \
      org.opencontainers.image.description="A kube-scheduler extender that lets Slurm decide" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=packages /opt/sluice /opt/sluice
COPY config/sluice.yaml /etc/sluice/sluice.yaml
COPY extender /opt/sluice/app/extender
RUN python3 -m compileall -q /opt/sluice/app
# nothing is written from here on: the root file system may be read-only
ENV PYTHONPATH=/opt/sluice/app PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    SLURM_CONF=/etc/sluice/slurm.conf
USER 65532:65532
EXPOSE 8077
ENTRYPOINT ["/opt/sluice/bin/python", "-m", "extender"]
CMD ["serve", "--config", "/etc/sluice/sluice.yaml"]
