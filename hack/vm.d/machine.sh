# One run of the machine; sourced by hack/vm.
# shellcheck shell=bash disable=SC2054  # QEMU's arguments have commas in them

# run_machine [OPTION...] SCRIPT [ARG...]: see hack/vm.
run_machine() {
    local memory=2048 cpus=2 seconds=600 address=10.77.0.1 segment='' disks=() shares=()
    while [[ ${1:-} == --* ]]; do
        [[ $# -gt 1 ]] || die "$1 needs a value"
        case $1 in
        --ro | --rw)
            [[ -d $2 ]] || die "there is no folder $2 to show"
            shares+=("${1#--} $(realpath "$2")")
            ;;
        --memory) memory=$2 ;;
        --cpus) cpus=$2 ;;
        --disk) disks+=("$2") ;;
        --seconds) seconds=$2 ;;
        --address) address=$2 ;;
        --segment) segment=$2 ;;
        *) die "unknown option: $1" ;;
        esac
        shift 2
    done
    [[ -r ${1:-} ]] || die "there is no script ${1:-} to run"
    image_is_current || die "there is no image, or an old one" "hack/vm setup"
    local script=$1
    shift

    run=$(mktemp -d "${TMPDIR:-/tmp}/swiftlet-vm.XXXXXX")
    machine=
    trap 'end_machine' EXIT
    trap 'exit 130' INT TERM
    mkdir "$run/ctl"
    cp "$script" "$run/ctl/script"
    printf '%q ' "$@" >"$run/ctl/arguments"
    printf '%s\n' "$address" >"$run/ctl/address"
    printf '%s\n' "${shares[@]}" | sed '/^$/d' >"$run/ctl/shares"

    local arguments=(-name swiftlet -m "$memory" -smp "$cpus" -nodefaults -no-user-config -display none -no-reboot
        -kernel "$cache/kernel" -initrd "$cache/first.gz"
        -append "console=ttyS0 quiet loglevel=4 panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on clocksource=acpi_pm no_timer_check cryptomgr.notests nokaslr"
        -serial "file:$run/console" -serial "file:$run/output"
        -drive "if=none,id=disk,file=$cache/disk.img,format=raw,snapshot=on,cache=unsafe" -device virtio-blk-pci,drive=disk
        -device virtio-rng-pci
        -fsdev "local,id=ctl,path=$run/ctl,security_model=none" -device virtio-9p-pci,fsdev=ctl,mount_tag=ctl)
    local number=0 share mode
    for share in "${shares[@]}"; do
        mode=
        [[ $share == ro\ * ]] && mode=,readonly=on
        arguments+=(-fsdev "local,id=share$number,path=${share#* },security_model=none,multidevs=remap$mode"
            -device "virtio-9p-pci,fsdev=share$number,mount_tag=share$number")
        number=$((number + 1))
    done
    number=0
    local disk
    for disk in "${disks[@]}"; do
        truncate -s "$disk" "$run/disk$number"
        arguments+=(-drive "if=none,id=disk$number,file=$run/disk$number,format=raw,cache=unsafe,discard=unmap"
            -device "virtio-blk-pci,drive=disk$number")
        number=$((number + 1))
    done
    if [[ -n $segment ]]; then
        arguments+=(-netdev "socket,id=net,mcast=230.77.0.1:$segment,localaddr=127.0.0.1")
    else
        arguments+=(-netdev hubport,id=net,hubid=0)
    fi
    # The last byte of the address keeps machines of a segment apart.
    arguments+=(-device "virtio-net-pci,netdev=net,mac=52:54:00:77:00:$(printf '%02x' "${address##*.}")")
    arguments+=(-machine q35,hpet=off -accel "tcg,thread=multi,tb-size=512" -cpu max)

    : >"$run/output"
    qemu-system-x86_64 "${arguments[@]}" </dev/null 2>"$run/qemu" &
    machine=$!
    tail -n +1 -f --pid "$machine" "$run/output" 2>/dev/null &
    local tail=$! end=$((SECONDS + seconds))
    while kill -0 "$machine" 2>/dev/null; do
        if ((SECONDS >= end)); then
            say "error: the machine has taken longer than $seconds s; the last of its console:"
            tail -n 5 "$run/console" >&2
            exit 124
        fi
        sleep 0.2
    done
    wait "$tail" || true
    machine=
    if [[ ! -s $run/ctl/status ]]; then
        say "error: the machine did not come up:"
        tail -n 20 "$run/qemu" "$run/console" >&2
        exit 125
    fi
    return "$(cat "$run/ctl/status")"
}

end_machine() {
    if [[ -n $machine ]]; then
        kill "$machine" 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
    fi
    rm -rf "$run"
}
