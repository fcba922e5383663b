#!/usr/bin/env bash
# Prepares the trial of compose.yaml in ./trial, once: builds the images, deals data, makes the server's
# identity, and enrols four parties as people would, with the commands that they would use.
#
# COMPOSE: how to call compose; default "docker compose".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

read -r -a compose <<< "${COMPOSE:-docker compose}"
parties=(north south east west)
export PATE_UID PATE_GID
PATE_UID=$(id -u)
PATE_GID=$(id -g)

if [ -e trial ]; then
  echo "trial/ is there already: use it, or remove it to start anew (its ledger and keys go with it)" >&2
  exit 1
fi

# One-off containers: without others, and removed afterwards.
once() { "${compose[@]}" run --rm --no-deps -T "$@"; }

umask 077
mkdir -p trial/server/{state,exchange} trial/student trial/dealt
for party in "${parties[@]}"; do
  mkdir -p "trial/$party"/{state,exchange}
done
touch trial/public.npz  # a place to mount; the data comes in a moment
printf 'PATE_UID=%s\nPATE_GID=%s\n' "$PATE_UID" "$PATE_GID" > .env

if [ -z "${NO_BUILD:-}" ]; then
  "${compose[@]}" --profile setup --profile student build
fi

echo "== data: disjoint records for each party, a public set, a test set"
once deal
for party in "${parties[@]}"; do
  mv "trial/dealt/$party" "trial/$party/data"
done
mv trial/dealt/public.npz trial/public.npz
mv trial/dealt/test.npz trial/test.npz

echo "== the server's authority, certificate and signing key"
once server init --host server --host localhost --host 127.0.0.1

for party in "${parties[@]}"; do
  echo "== $party: bundle, keys, answer, admission"
  once server enroll "$party" --out "/exchange/$party.bundle.json"
  # Handed over in private; here both are on one disk.
  mv "trial/server/exchange/$party.bundle.json" "trial/$party/exchange/"
  once "$party" enroll "/exchange/$party.bundle.json" --answer "/exchange/$party.answer.json" \
    --home /var/lib/pate/party
  mv "trial/$party/exchange/$party.answer.json" trial/server/exchange/
  once server admit "/exchange/$party.answer.json"
  rm "trial/$party/exchange/$party.bundle.json"  # its code is used up
done
once server parties
echo "ready: ${compose[*]} up --detach --wait"
