#!/bin/sh
# Write docker/.env and docker/secrets/identity.key, once: random passwords, and the server's key; and make the pipeline's
# folders, docker/pipeline. Keep the first two: with another key every registration is lost.
#
#   WAKUPUSH    the command to make the key with; the image's unless given
#   DIRECTORY   where to write; the folder of this script unless given
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=${DIRECTORY:-$here}

if [ -e "$directory/.env" ]; then
    echo "$directory/.env exists already; nothing was changed" >&2
    exit 1
fi

# Containers run as the user who may read the key, and never as root.
user=$(id -u):$(id -g)
if [ "$(id -u)" = 0 ]; then
    user=10001:10001
fi

umask 077
mkdir -p "$directory/secrets/gorush"
chmod 711 "$directory/secrets"
key="$directory/secrets/identity.key"
if [ -n "${WAKUPUSH:-}" ]; then
    public_key=$($WAKUPUSH keygen "$key")
else
    public_key=$(docker run --rm --network none --user "$(id -u):$(id -g)" --volume "$directory/secrets:/run/secrets" \
        "wakupush:${WAKUPUSH_VERSION:-1.0.0rc1}" keygen /run/secrets/identity.key)
fi
for folder in lake keys reports archive; do
    mkdir -p "$directory/pipeline/$folder"
done
chown -R "$user" "$key" "$directory/secrets/gorush" "$directory/pipeline"

password() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

# Compose reads it. Nobody but its owner can.
cat >"$directory/.env" <<END
WAKUPUSH_USER=$user
WAKUPUSH_PUBLIC_KEY=$public_key
POSTGRES_PASSWORD=$(password)
POSTGRES_REGISTRATION_PASSWORD=$(password)
POSTGRES_QUERY_PASSWORD=$(password)
POSTGRES_DISPATCH_PASSWORD=$(password)
POSTGRES_REST_PASSWORD=$(password)
POSTGRES_SCHEDULE_PASSWORD=$(password)
POSTGRES_RECONCILE_PASSWORD=$(password)
POSTGRES_EXPORTER_PASSWORD=$(password)
POSTGRES_FEEDBACK_PASSWORD=$(password)
POSTGRES_OPERATOR_PASSWORD=$(password)
POSTGRES_PIPELINE_PASSWORD=$(password)
REDIS_PASSWORD=$(password)
REDIS_INGEST_PASSWORD=$(password)
REDIS_RECONCILE_PASSWORD=$(password)
REDIS_WORKER_PASSWORD=$(password)
REDIS_BEAT_PASSWORD=$(password)
REDIS_EXPORTER_PASSWORD=$(password)
REDIS_OPERATOR_PASSWORD=$(password)
REDIS_FLOWER_PASSWORD=$(password)
FEEDBACK_SECRET=$(password)
FLOWER_BASIC_AUTH=operator:$(password)
GRAFANA_PASSWORD=$(password)
END
echo "the server's public key is $public_key"
