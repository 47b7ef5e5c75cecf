# Images without a registry: base images from Debian packages, the project's image from its Dockerfile.
# shellcheck shell=bash disable=SC2154  # names from settings.sh

# shellcheck source=hack/platforms.sh
source "$(dirname "${BASH_SOURCE[0]}")/../platforms.sh"

# with_buildah COMMAND...: with storage of its own in the cache, and nothing left mounted when the script ends.
with_buildah() {
    mkdir -p "$images"
    printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' \
        "$cache/buildah" "$cache/buildah-run" >"$cache/storage.conf"
    printf 'unqualified-search-registries = []\n' >"$cache/registries.conf"
    printf '{"default":[{"type":"insecureAcceptAnything"}]}' >"$cache/policy.json"
    export CONTAINERS_STORAGE_CONF=$cache/storage.conf REGISTRIES_CONFIG_PATH=$cache/registries.conf
    export BUILDAH_ISOLATION=chroot
    trap 'umount "$cache/buildah/overlay" 2>/dev/null || true' EXIT
    "$@"
}

# archive_of IMAGE: the file that it is saved in.
archive_of() {
    local name=${1#docker.io/library/}
    printf '%s/%s.tar\n' "$images" "${name//[\/:]/_}"
}

# save_image IMAGE
save_image() {
    local archive
    archive=$(archive_of "$1")
    rm -f "$archive.part"
    buildah push --quiet --signature-policy "$cache/policy.json" "$1" "docker-archive:$archive.part:$1" >/dev/null
    mv "$archive.part" "$archive"
}

lacks_python() {
    [[ ! -e $(archive_of "$python_image") ]]
}

make_python() {
    make_python_root
    with_buildah make_python_image
}

lacks_redis() {
    [[ ! -e $(archive_of "$redis_image") ]]
}

make_redis() {
    make_redis_root
    with_buildah make_redis_image
}

lacks_pods() {
    [[ ! -e $(archive_of "$pause_image") || ! -e $(archive_of "$coredns_image") || ! -e $(archive_of "$local_path_image") ]] ||
        [[ $programs/coredns -nt $(archive_of "$coredns_image") ]]
}

make_pods() {
    gcc -Os -static -s -o "$programs/pause" hack/cluster.d/pause.c
    with_buildah make_program_image "$pause_image" pause
    with_buildah make_program_image "$coredns_image" coredns
    with_buildah make_program_image "$local_path_image" local-path-provisioner
}

# make_program_image IMAGE PROGRAM: nothing but one static program.
make_program_image() {
    local container
    container=$(buildah from scratch)
    buildah copy --quiet "$container" "$programs/$2" "/$2" >/dev/null
    buildah config --entrypoint "[\"/$2\"]" "$container"
    buildah commit --quiet --signature-policy "$cache/policy.json" --rm "$container" "$1" >/dev/null
    save_image "$1"
}

# make_debian_root FOLDER PACKAGES [MACHINE]: as little of Debian as these packages need. Packages that were downloaded
# once are kept.
make_debian_root() {
    mkdir -p "$cache/debian"
    rm -rf --one-file-system "$1"
    debootstrap --arch="${3:-$(machine_here)}" --variant=minbase --cache-dir="$cache/debian" --include="$2" bookworm "$1" "$(debian_mirror)"
    rm -rf "$1"/var/cache/apt/*.bin "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/* \
        "$1"/usr/share/{doc,man,info,locale} "$1"/var/log/*.log
}

make_redis_root() {
    local root=$cache/redis-root.part
    if [[ -e $cache/redis-root ]]; then
        return
    fi
    make_debian_root "$root" redis-server
    chroot "$root" redis-server --version
    mv "$root" "$cache/redis-root"
}

make_redis_image() {
    local container
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$cache/redis-root" / >/dev/null
    buildah config --env PATH=/usr/sbin:/usr/bin:/sbin:/bin --workingdir /data --cmd redis-server "$container"
    buildah commit --quiet --signature-policy "$cache/policy.json" --rm "$container" "$redis_image" >/dev/null
    save_image "$redis_image"
}

# Debian's own python3 would not do: its dist-packages break `pip install --prefix`, which the Dockerfile uses. So
# this machine's CPython is put into /usr/local, as the image of that name has it.
make_python_root() {
    local root=$cache/python-root.part python
    if [[ -e $cache/python-root ]]; then
        return
    fi
    python=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')
    make_debian_root "$root" "$(python_libraries)"
    mkdir -p "$root/usr/local/lib/python3.11/site-packages"
    cp -a "$python/bin/python3.11" "$root/usr/local/bin/"
    find "$python/lib" -maxdepth 1 -name 'libpython3*.so*' -exec cp -a {} "$root/usr/local/lib/" \;
    tar -C "$python/lib" --exclude=site-packages --exclude=__pycache__ --exclude=test --exclude=tests \
        --exclude='config-3*' --exclude=idlelib --exclude=tkinter --exclude=turtledemo -cf - python3.11 |
        tar -C "$root/usr/local/lib" -xf -
    ln -sf python3.11 "$root/usr/local/bin/python3"
    ln -sf python3 "$root/usr/local/bin/python"
    chroot "$root" ldconfig
    PIP_ROOT_USER_ACTION=ignore chroot "$root" /usr/local/bin/python3.11 -m ensurepip
    ln -sf pip3 "$root/usr/local/bin/pip"
    chroot "$root" /usr/local/bin/python3.11 -c 'import ssl, sqlite3, ctypes, bz2, lzma, zlib, readline, uuid, hashlib'
    find "$root" -name __pycache__ -type d -prune -exec rm -rf {} +
    mv "$root" "$cache/python-root"
}

python_libraries() {
    printf '%s,' ca-certificates netbase tzdata libssl3 libffi8 libsqlite3-0 zlib1g libbz2-1.0 liblzma5 libreadline8 \
        libncursesw6 libuuid1
    printf 'libexpat1'
}

# The mirror that this machine uses itself.
debian_mirror() {
    local mirror
    mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
    [[ -n $mirror ]] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list | head -n 1)
    printf '%s\n' "$mirror"
}

make_python_image() {
    commit_python "$cache/python-root" "$python_image" "$(machine_here)"
    save_image "$python_image"
}

# commit_python ROOT IMAGE MACHINE
commit_python() {
    local container
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$1" / >/dev/null
    buildah config --arch "$3" --env PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
        --env LANG=C.UTF-8 --cmd python3 "$container"
    buildah commit --quiet --signature-policy "$cache/policy.json" --rm "$container" "$2" >/dev/null
}

# For another kind of machine there is no CPython here to take. Debian's is an environment in /usr/local: in one, pip
# installs where the Dockerfile expects it.
make_foreign_python_root() {
    local root=$cache/python-root-$1
    if [[ -e $root ]]; then
        return
    fi
    # Joined, since it is called where a failure does not end the script by itself.
    # shellcheck disable=SC2016  # for the inner shell
    make_debian_root "$root.part" ca-certificates,netbase,tzdata,python3.11,python3-pip-whl "$1" &&
        chroot "$root.part" python3.11 -m venv --without-pip /usr/local &&
        chroot "$root.part" sh -euc 'wheel=$(echo /usr/share/python-wheels/pip-*.whl)
            PYTHONPATH=$wheel exec /usr/local/bin/python3 -m pip install --quiet --no-index --root-user-action ignore "$wheel"' &&
        chroot "$root.part" /usr/local/bin/python3 -c 'import ssl, sqlite3, ctypes, bz2, lzma, zlib, readline, uuid, hashlib' &&
        mv "$root.part" "$root"
}

# make_base MACHINE: `base` is the image then that the project's is built on; it is made from Debian packages if buildah
# has none. PYTHON_IMAGE names another one, PYTHON_IMAGE_arm64 one for that machine.
make_base() {
    local chosen=PYTHON_IMAGE_$1
    if [[ $1 == "$(machine_here)" ]]; then
        base=${PYTHON_IMAGE:-$python_image}
        if [[ $base == "$python_image" ]] && ! buildah inspect --type image "$base" >/dev/null 2>&1; then
            say "image: $base from Debian packages and this machine's Python ($cache/python-here.log)"
            make_python_root >"$cache/python-here.log" 2>&1
            make_python_image
        fi
        return
    fi
    base=${!chosen:-swiftlet.local/python:3.11-$1}
    if [[ -z ${!chosen:-} ]] && ! buildah inspect --type image "$base" >/dev/null 2>&1; then
        say "image: a base for $1 from Debian packages, which takes minutes, once"
        make_foreign_python_root "$1" >"$cache/python-$1.log" 2>&1 ||
            die "the base for $1 can't be made" "see $cache/python-$1.log, or name one that buildah has: PYTHON_IMAGE_$1"
        commit_python "$cache/python-root-$1" "$base" "$1"
    fi
}

# build_image IMAGE: the project's, from its Dockerfile and the wheel that hack/setup built; with RDMA=1 one with RDMA, with
# PLATFORM one for that.
build_image() {
    local machine
    machine=$(machine_of "${PLATFORM:-}")
    if [[ $machine != "$(machine_here)" ]]; then
        [[ -z ${RDMA:-} ]] || die "an image with RDMA is built on a machine of its own platform: UCX is not cross-compiled"
        require_machine "$machine"
        make_wheel "$machine"
    elif [[ -n ${RDMA:-} ]]; then
        hack/rdma wheel
    else
        # A wheel of older sources would go with the services of today.
        hack/setup
        compgen -G "native/target/wheels/*_$(uname -m).whl" >/dev/null || hack/setup --native
    fi
    with_buildah buildah_project "$1" "$machine" --build-arg "RDMA=${RDMA:-}"
    # What is saved, each machine of the cluster imports.
    [[ $machine != "$(machine_here)" ]] || with_buildah save_image "$1"
}

# buildah_project IMAGE MACHINE [ARGUMENT...]: what it takes from native/target/wheels is there.
buildah_project() {
    local name=$1 machine=$2 base
    shift 2
    make_base "$machine"
    # pip in the build takes the certificates of this machine, which may sit behind a proxy of its own.
    printf '%s\n' '[global]' 'cert = /etc/ssl/certs/ca-certificates.crt' 'root-user-action = ignore' \
        'disable-pip-version-check = true' >"$cache/pip.conf"
    buildah bud --quiet --layers --network host --pull-never --platform "linux/$machine" \
        --signature-policy "$cache/policy.json" --volume /etc/ssl/certs:/etc/ssl/certs:ro \
        --volume "$cache/pip.conf:/etc/pip.conf:ro" --build-arg NATIVE=prebuilt --build-arg "PYTHON_IMAGE=$base" "$@" \
        --tag "$name" . >/dev/null
}
