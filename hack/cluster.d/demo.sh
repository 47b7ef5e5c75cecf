# A store on a cluster of this machine, from nothing: what the README says for a Kubernetes that is there, done step by step.
# shellcheck shell=bash disable=SC2154  # names from settings.sh; `kind` is chosen by hack/cluster

readonly demo_image=swiftlet:$chart_version     # what the chart takes when it is told nothing
readonly login_within_s=180                     # the kubelet brings a new user to the proxies within a minute or two

demo() {
    local start=$SECONDS
    [[ -x .venv/bin/python ]] || die "no .venv" "make demo, which makes it"
    command -v curl >/dev/null || die "curl is not installed, which stores the file" "apt-get install curl"
    set_up_cluster
    export KUBECONFIG=$kubeconfig PATH=$programs:$PATH
    with_progress "[1/5] a cluster of $nodes nodes" 40 demo_cluster
    with_progress "[2/5] the image $demo_image of this checkout, in all nodes" 90 demo_image
    with_progress "[3/5] the operator: helm upgrade --install swiftlet charts/swiftlet" 40 demo_operator
    with_progress "[4/5] a store and a user: kubectl apply -f examples/minimal.yaml" 90 demo_store
    with_progress "[5/5] README.md stored through the Service photos, and read back the same" 20 demo_file
    say "cluster: the demo is there ($(spoken $((SECONDS - start))))"
    how_to_go_on
}

# One that runs already is used.
make_demo_cluster() {
    if [[ $kind == namespaces ]] || ! status >/dev/null 2>&1; then
        up
    fi
}

make_demo_image() {
    image "$demo_image"
}

make_demo_operator() {
    helm upgrade --install swiftlet charts/swiftlet --namespace swiftlet-system --create-namespace
    # Its image may have another content than the one of the same name that it runs.
    kubectl --namespace swiftlet-system rollout restart deployment/swiftlet-operator
    kubectl --namespace swiftlet-system rollout status deployment/swiftlet-operator --timeout 180s
}

make_demo_store() {
    kubectl apply --filename examples/minimal.yaml
    kubectl wait --for=condition=Ready storagecluster/photos storageuser/alice --timeout 600s
}

make_demo_file() {
    local url storage
    local -a as_alice
    folder=$(mktemp -d)
    kubectl port-forward service/photos :80 >"$folder/forwarded" &
    forwarding=$!
    trap 'kill "$forwarding"; rm -rf "$folder"' EXIT
    wait_until 30 "the way to the Service photos" grep -q '^Forwarding from 127' "$folder/forwarded"
    url=$(sed -n 's/^Forwarding from \(127\.0\.0\.1:[0-9]*\) .*/http:\/\/\1/p' "$folder/forwarded")
    wait_until "$login_within_s" "the login of press:alice" log_in "$url"
    storage=$(answered X-Storage-Url)
    as_alice=(curl -fsS -H "X-Auth-Token: $(answered X-Auth-Token)")
    "${as_alice[@]}" -X PUT "$storage/books"
    "${as_alice[@]}" --upload-file README.md "$storage/books/README.md"
    "${as_alice[@]}" --output "$folder/back" "$storage/books/README.md"
    cmp README.md "$folder/back"
}

# log_in URL: as press:alice; the answer's headers are in $folder/answer.
log_in() {
    local key
    key=$(kubectl get secret alice-credentials --output 'jsonpath={.data.key}' | base64 --decode)
    curl -fsS --dump-header "$folder/answer" -H 'X-Auth-User: press:alice' -H "X-Auth-Key: $key" "$1/auth/v1.0"
}

# answered HEADER: what the login's answer says.
answered() {
    sed -n "s/^$1: *\\([^[:space:]]*\\).*/\\1/Ip" "$folder/answer"
}

how_to_go_on() {
    cat >&2 <<'TEXT'

To go on:
  hack/cluster shell                                  a shell with KUBECONFIG set, for what follows
  kubectl get storagecluster,storageuser,pods
  kubectl port-forward service/photos 8080:80         then the API is at http://127.0.0.1:8080/auth/v1.0
  kubectl get secret alice-credentials -o jsonpath='{.data.key}' | base64 --decode
                                                      the key of the user press:alice
  hack/cluster down                                   removes the cluster and everything in it; --keep stops it alone
TEXT
}
