# How Python of hack/rdma.d/pack.py runs in a machine; sourced by the scripts there. `shown` is the folder of the tar file.
# shellcheck shell=bash disable=SC2154
export PYTHONHOME=/run/python LD_LIBRARY_PATH=/run/python/lib PYTHONDONTWRITEBYTECODE=1 PATH=/run/python/bin:$PATH
mkdir -p $PYTHONHOME
mount -t tmpfs -o size=600m tmpfs $PYTHONHOME
tar -x -f "$shown/python.tar" -C $PYTHONHOME

# A program, so that who starts it in the background has its own process to end.
printf '#!/bin/sh\nexec python3 -m swiftlet.main "$@"\n' >$PYTHONHOME/bin/swiftlet
chmod 755 $PYTHONHOME/bin/swiftlet

# answers ADDRESS PORT: whether a service is ready there. Without Python, which takes seconds to start on such a machine.
answers() {
    local line
    {
        exec 3<>"/dev/tcp/$1/$2" || return 1
    } 2>/dev/null
    printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
    read -r -t 30 line <&3
    exec 3>&-
    [[ $line == *" 200 "* ]]
}

# wait_for ADDRESS PORT PID LOG: until the service is ready; fails when the process ends before.
wait_for() {
    until answers "$1" "$2"; do
        if ! kill -0 "$3" 2>/dev/null; then
            cat "$4"
            return 1
        fi
        sleep 0.5
    done
}
