#!/usr/bin/env bash
# Build MinIO and SeaweedFS from their Go modules into .cache/bench-peers-bin: versions and digests are those of go.mod and
# go.sum beside this file. The first time it takes half an hour on two processors; what was built is kept.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "$0")/../../hack/lib.sh"

readonly out=$PWD/.cache/bench-peers-bin
# Each program: its module, and the package in it.
readonly -A modules=([minio]=github.com/minio/minio [weed]=github.com/seaweedfs/seaweedfs)
readonly -A packages=([minio]=. [weed]=./weed)

command -v go >/dev/null || die "go is not installed (MinIO and SeaweedFS are built from their modules)" "install Go"
mkdir -p "$out"
proxy=$(go env GOPROXY)
# Modules come from the registry alone, never from where their sources are kept.
export GOPROXY=${proxy%,direct} GOFLAGS="-mod=readonly -buildvcs=false -trimpath -p=1"
for program in "${!modules[@]}"; do
    module=${modules[$program]}
    version=$(awk -v module="$module" '$1 == module { print $2 }' bench/peers/go.mod)
    [[ -x $out/$program && $(cat "$out/$program.version" 2>/dev/null) == "$version" ]] && continue
    say "bench-peers: building $program $version"
    folder=$(go -C bench/peers mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    nice go -C "$folder" build -ldflags="-s -w" -o "$out/$program" "${packages[$program]}"
    echo "$version" >"$out/$program.version"
done
