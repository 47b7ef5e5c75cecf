# The kinds of machine that images are made for, and what this one needs to build for another; sourced after lib.sh.
# Machines are called as images call them: amd64, arm64.
# shellcheck shell=bash

# machine_here: what this one is.
machine_here() {
    case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) die "images are not made on a machine of the kind $(uname -m)" "use one with an x86-64 or an ARM64 processor" ;;
    esac
}

# machine_of PLATFORM: linux/arm64 is arm64, no platform is this machine.
machine_of() {
    case $1 in
    '') machine_here ;;
    linux/amd64 | linux/arm64) printf '%s\n' "${1#linux/}" ;;
    *) die "images are not made for $1" "the platforms are linux/amd64 and linux/arm64" ;;
    esac
}

# kernel_name MACHINE: as `uname -m` says it there, which Rust's targets, wheels and qemu's programs have in their names.
kernel_name() {
    case $1 in
    amd64) echo x86_64 ;;
    arm64) echo aarch64 ;;
    esac
}

rust_target() {
    printf '%s-unknown-linux-gnu\n' "$(kernel_name "$1")"
}

# cross_compiler MACHINE: what compiles C for it, and links for Rust.
cross_compiler() {
    printf '%s-linux-gnu-gcc\n' "$(kernel_name "$1")"
}

# cross_packages MACHINE: Debian's packages of what building for it needs here.
cross_packages() {
    printf '%s\n' "gcc-$(kernel_name "$1" | tr _ -)-linux-gnu" "libc6-dev-$1-cross" qemu-user-static debootstrap buildah
}

# compiles_for MACHINE: whether Rust does.
compiles_for() {
    command -v "$(cross_compiler "$1")" >/dev/null && rustup target list --installed | grep -qx "$(rust_target "$1")"
}

# runs_programs_of MACHINE: whether this kernel does, in a root file system without qemu too (flag F).
runs_programs_of() {
    local entry
    [[ $1 != "$(machine_here)" ]] || return 0
    entry=/proc/sys/fs/binfmt_misc/qemu-$(kernel_name "$1")
    grep -qsx enabled "$entry" && grep -qs '^flags:.*F' "$entry"
}

# require_machine MACHINE: stop unless images can be built for it here.
require_machine() {
    [[ $1 != "$(machine_here)" ]] || return 0
    compiles_for "$1" || die "Rust does not compile for $1 here" "hack/foreign $1 installs what is missing"
    runs_programs_of "$1" ||
        die "the kernel does not run programs for $1" "hack/foreign $1 installs qemu and tells the kernel of it"
}

# use_compiler MACHINE: cargo links with it for that machine; for this one with what it finds.
use_compiler() {
    local target
    [[ $1 != "$(machine_here)" ]] || return 0
    target=$(rust_target "$1" | tr a-z- A-Z_)
    export "CARGO_TARGET_${target}_LINKER=$(cross_compiler "$1")"
}

# make_wheel MACHINE: the native package for it, in native/target/wheels beside those for others; compiled here.
make_wheel() {
    local log=build/native-$1.log
    mkdir -p build
    use_compiler "$1"
    rm -f native/target/wheels/*_"$(kernel_name "$1")".whl
    .venv/bin/maturin build --release --locked --target "$(rust_target "$1")" \
        --manifest-path native/crates/python/Cargo.toml --interpreter python3.11 --out native/target/wheels >"$log" 2>&1 ||
        die "the native package does not build for $1" "see $log"
}
