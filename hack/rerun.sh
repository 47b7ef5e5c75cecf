# Test runs in which what failed is run once more, alone; sourced after lib.sh.
#
# A test that passes then has failed because of what ran beside it or before it. The run stays green, and its summary names
# the test in a line `FLAKY ...`: such a test is a defect and is to be mended. When more than `rerun_at_most` tests failed,
# nothing is run again, because that many failures have one cause.
# shellcheck shell=bash

readonly rerun_at_most=10
flaky=()

# failed_tests CACHE: the node ids of the tests that failed in the last pytest run with this cache, each ended by a NUL.
failed_tests() {
    python - "$1/v/cache/lastfailed" <<'PYTHON'
import json, pathlib, sys

path = pathlib.Path(sys.argv[1])
for test in json.loads(path.read_text()) if path.exists() else ():
    print(test, end="\0")
PYTHON
}

# pytest_with_rerun STEP ARGUMENT...: run pytest, and each test that failed once more in a process of its own.
pytest_with_rerun() {
    local step=$1 cache=.cache/pytest/$1 status=0 test
    local -a failed=()
    shift
    pytest -q -o "cache_dir=$cache" --cache-clear "$@" || status=$?
    # 1: tests failed. Anything else (interrupted, wrong usage, nothing collected) is no matter of single tests.
    if [[ $status -ne 1 ]]; then
        return "$status"
    fi
    mapfile -d '' failed < <(failed_tests "$cache")
    if [[ ${#failed[@]} -eq 0 || ${#failed[@]} -gt $rerun_at_most ]]; then
        return 1
    fi
    for test in "${failed[@]}"; do
        say "== once more, alone: $test"
        pytest -q -o "cache_dir=$cache-alone" -n 0 "$test" || return 1
        flaky+=("$step  $test")
    done
}

# cargo_test_with_rerun STEP ARGUMENT...: run `cargo test`, and the tests that failed once more, target by target, in one thread.
cargo_test_with_rerun() {
    local step=$1 log=.cache/cargo-test.log status=0 target test
    local -a targets=() names=() arguments=()
    shift
    mkdir -p .cache
    cargo test --quiet --manifest-path native/Cargo.toml --no-fail-fast "$@" 2>&1 | tee "$log" || status=$?
    if [[ $status -eq 0 ]]; then
        return
    fi
    # Cargo closes with the arguments that name each failed target; a test's process that died names no failed test.
    # shellcheck disable=SC2016  # the backticks are the ones that cargo prints
    mapfile -t targets < <(sed -n 's/^    `\(-.*\)`$/\1/p' "$log")
    mapfile -t names < <(sed -n 's/^    \([A-Za-z0-9_]\+\(::[A-Za-z0-9_]\+\)*\)$/\1/p' "$log" | sort -u)
    if [[ ${#targets[@]} -eq 0 || ${#names[@]} -eq 0 || ${#names[@]} -gt $rerun_at_most ]] || grep -q 'process didn.t exit' "$log"; then
        return "$status"
    fi
    for target in "${targets[@]}"; do
        say "== once more, alone: cargo test $target"
        read -ra arguments <<<"$target"
        cargo test --quiet --manifest-path native/Cargo.toml "${arguments[@]}" -- --exact --test-threads 1 "${names[@]}" ||
            return 1
    done
    for test in "${names[@]}"; do
        flaky+=("$step  $test")
    done
}
