#!/bin/sh
# Build the four images with buildah where no registry of images can be reached: on bases of this Debian's own packages,
# as root. `make images` installs what it takes, and docs/operating/deploy.md says how such an image differs.
#
# Bases are made once a day, as localhost/wakupush-base-python and -java. CONTAINERS_STORAGE_CONF, which buildah and podman
# read, says where images lie.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
today=$(date -u +%Y%m%d)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# chroot: the RUN lines need no runtime of containers. docker: the other format has no health checks.
build() {
    buildah bud --isolation chroot --format docker --layers "$@"
}

# NAME PACKAGES RUN: a base of Debian's packages.
base() {
    image=localhost/wakupush-base-$1:$release-$today
    if ! buildah inspect --type image "$image" >/dev/null 2>&1; then
        mmdebstrap --variant=minbase --include="$2" "$release" "$work/base.tar"
        printf 'FROM scratch\nADD base.tar /\nRUN %s\n' "$3" >"$work/Dockerfile"
        build -f "$work/Dockerfile" -t "$image" "$work"
        rm "$work/base.tar"
    fi
}

# `python` with pip is in /usr/local, and Java in /opt/java/openjdk, as in the images that the Dockerfile names.
base python ca-certificates,netbase,tzdata,python3,python3-pip,python3-venv 'python3 -m venv /usr/local'
base java default-jre-headless \
    'find -L /usr/lib/jvm -type l -delete; mkdir /opt/java; cp -rL /usr/lib/jvm/default-java /opt/java/openjdk'

# Packages are fetched with the certificate authorities of this machine, which do not get into the images.
set -- --volume /etc/ssl/certs:/etc/ssl/certs:ro
if [ -e /etc/ssl/certs/java/cacerts ]; then
    set -- "$@" --build-arg JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/etc/ssl/certs/java/cacerts
fi
for image in wakupush wakupush-devnet wakupush-flower wakupush-pipeline; do
    build "$@" -f docker/Dockerfile --target "${image#wakupush-}" -t "localhost/$image:$version" \
        --build-arg "PYTHON=localhost/wakupush-base-python:$release-$today" \
        --build-arg "JAVA=localhost/wakupush-base-java:$release-$today" .
done
