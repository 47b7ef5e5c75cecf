# The machine's kernel, first file system and disk, from Debian's packages; sourced by hack/vm.
# shellcheck shell=bash

cache=${SWIFTLET_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/swiftlet/rdma}
readonly programs=(qemu-system-x86_64:qemu-system-x86 debootstrap:debootstrap busybox:busybox-static cpio:cpio
    mke2fs:e2fsprogs dpkg-deb:dpkg python3:python3)
readonly packages=rdma-core,ibverbs-providers,ibverbs-utils,iproute2,kmod,procps,nftables,xfsprogs,dmsetup
# What is loaded in it, and by whom: the machine's start, RDMA, tests of the network, tests of disks.
readonly modules=(virtio_pci virtio_blk ext4 9p 9pnet_virtio virtio_net virtio_rng crc32c_generic crc32c_intel
    ib_uverbs ib_umad rdma_ucm rdma_rxe crc32_generic crc32_pclmul
    nf_tables nft_ct sch_netem
    dm-flakey dm-log-writes dm-delay dm-snapshot loop xfs)
readonly first_modules=(virtio_pci virtio_blk crc32c_generic ext4 9p 9pnet_virtio)

# Install the programs that are missing, or say which.
need_programs() {
    local pair missing=()
    [[ $(uname -m) == x86_64 ]] || die "the machine is made for x86_64, this one is $(uname -m)"
    for pair in "${programs[@]}"; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    command -v apt-get >/dev/null || die "these programs are missing: ${missing[*]}" "install them, or use Debian"
    [[ $(id -u) -eq 0 ]] || die "these packages are missing: ${missing[*]}" "sudo apt-get install ${missing[*]}"
    say "vm: installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive timeout 900 apt-get install -y --no-install-recommends "${missing[@]}" >"$cache/apt.log" 2>&1 ||
        die "apt-get could not install ${missing[*]}" "see $cache/apt.log; apt-get update may help"
}

# Whether the image is of this version of these scripts.
image_is_current() {
    [[ -s $cache/disk.img && $(cat "$cache/made-by" 2>/dev/null) == "$(recipe)" ]]
}

recipe() {
    cat hack/vm.d/image.sh hack/vm.d/init-first hack/vm.d/init | sha256sum | cut -d ' ' -f 1
}

# The kernel's modules and all that they need, by path in the tree of modules.
module_files() {
    local root=$1 version=$2
    shift 2
    local module
    for module; do
        chroot "$root" modprobe --set-version "$version" --show-depends "$module" 2>/dev/null || true
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}'
}

# A kernel that is an ELF file starts without decompressing itself, which is slow where it is emulated.
unpack_kernel() {
    python3 - "$1" "$2" <<'PYTHON'
import lzma, sys
packed = open(sys.argv[1], "rb").read()
at, kernel = packed.find(b"\xfd7zXZ\0"), b""
while at >= 0 and not kernel.startswith(b"\x7fELF"):
    try:
        kernel = lzma.LZMADecompressor().decompress(packed[at:])
    except lzma.LZMAError:
        pass
    at = packed.find(b"\xfd7zXZ\0", at + 1)
open(sys.argv[2], "wb").write(kernel if kernel.startswith(b"\x7fELF") else packed)
PYTHON
}

build_image() {
    mkdir -p "$cache"
    need_programs
    image_is_current && return
    [[ $(id -u) -eq 0 ]] || die "making the image needs root (debootstrap, chroot)" "sudo hack/vm setup"
    local codename mirror start=$SECONDS
    # shellcheck source=/dev/null
    codename=$(source /etc/os-release && [[ $ID == debian ]] && printf '%s' "$VERSION_CODENAME") ||
        die "the image takes Debian's packages as this machine's apt has them, and this is no Debian"
    # shellcheck disable=SC2016  # apt-get fills that in
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $codename" | head -n 1)
    [[ -n $mirror ]] || die "apt knows no source of $codename" "apt-get update"
    work=$(mktemp -d "$cache/build.XXXXXX")
    chmod 755 "$work"
    trap 'rm -rf "$work"' EXIT

    say "vm: kernel"
    local package version
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
    (cd "$work" && timeout 600 apt-get download "$package" >"$cache/apt.log" 2>&1) ||
        die "apt-get could not fetch the kernel" "see $cache/apt.log; apt-get update may help"
    dpkg-deb -x "$work/$package"_*.deb "$work/kernel"
    version=$(ls "$work/kernel/lib/modules")
    unpack_kernel "$work/kernel/boot/vmlinuz-$version" "$cache/kernel"

    say "vm: root file system"
    local root=$work/root
    timeout 1800 debootstrap --variant=minbase --include="$packages" "$codename" "$root" "$mirror" \
        >"$cache/debootstrap.log" 2>&1 || die "debootstrap failed" "see $cache/debootstrap.log"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}
    mkdir -p "$root/lib/modules"
    mv "$work/kernel/lib/modules/$version" "$root/lib/modules/$version"
    chroot "$root" depmod "$version"
    module_files "$root" "$version" "${modules[@]}" | sed "s|^|$root|" >"$work/wanted"
    find "$root/lib/modules/$version/kernel" -name '*.ko' | grep -vxFf "$work/wanted" | xargs rm -f
    chroot "$root" depmod "$version"
    install -m 755 hack/vm.d/init "$root/sbin/swiftlet-init"

    say "vm: first file system"
    local first=$work/first path
    mkdir -p "$first"/{bin,proc,sys,dev,new,modules}
    install "$(command -v busybox)" "$first/bin/busybox"
    install -m 755 hack/vm.d/init-first "$first/init"
    module_files "$root" "$version" "${first_modules[@]}" | while read -r path; do
        cp "$root$path" "$first/modules/"
        basename "$path" >>"$first/modules/order"
    done
    (cd "$first" && find . | cpio --quiet -o -H newc | gzip) >"$cache/first.gz"

    rm -f "$cache/disk.img"
    truncate -s 2G "$cache/disk.img"
    mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1 -d "$root" "$cache/disk.img"
    recipe >"$cache/made-by"
    rm -rf "$work"
    trap - EXIT
    say "vm: made in $((SECONDS - start)) s"
}
