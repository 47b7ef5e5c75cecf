# Images without a registry: base images from Debian packages, the project's image from its Dockerfile.
# shellcheck shell=bash disable=SC2154  # names from settings.sh

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
    [[ ! -e $(archive_of "$pause_image") || ! -e $(archive_of "$coredns_image") || ! -e $(archive_of "$local_path_image") ]]
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

# make_debian_root FOLDER PACKAGES: as little of Debian as these packages need. Packages that were downloaded once are
# kept.
make_debian_root() {
    mkdir -p "$cache/debian"
    rm -rf --one-file-system "$1"
    debootstrap --variant=minbase --cache-dir="$cache/debian" --include="$2" bookworm "$1" "$(debian_mirror)"
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
    local container
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$cache/python-root" / >/dev/null
    buildah config --env PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin --env LANG=C.UTF-8 \
        --cmd python3 "$container"
    buildah commit --quiet --signature-policy "$cache/policy.json" --rm "$container" "$python_image" >/dev/null
    save_image "$python_image"
}

# build_image IMAGE: the project's, from its Dockerfile and the wheel that hack/setup built; with RDMA=1 one with RDMA.
build_image() {
    if [[ -n ${RDMA:-} ]]; then
        hack/rdma wheel
    else
        # A wheel of older sources would go with the services of today.
        hack/setup
        compgen -G 'native/target/wheels/*.whl' >/dev/null || hack/setup --native
    fi
    # pip in the build takes the certificates of this machine, which may sit behind a proxy of its own.
    printf '%s\n' '[global]' 'cert = /etc/ssl/certs/ca-certificates.crt' 'root-user-action = ignore' \
        'disable-pip-version-check = true' >"$cache/pip.conf"
    with_buildah buildah_project "$1"
}

buildah_project() {
    buildah bud --quiet --layers --network host --pull-never --signature-policy "$cache/policy.json" \
        --volume /etc/ssl/certs:/etc/ssl/certs:ro --volume "$cache/pip.conf:/etc/pip.conf:ro" \
        --build-arg NATIVE=prebuilt --build-arg "RDMA=${RDMA:-}" --build-arg "PYTHON_IMAGE=$python_image" --build-arg "RUST_IMAGE=$python_image" \
        --tag "$1" . >/dev/null
    save_image "$1"
}
