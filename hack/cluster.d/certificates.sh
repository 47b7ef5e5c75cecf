# The cluster's certificates, and a kubeconfig for each of its programs and for the person at the keyboard.
# shellcheck shell=bash disable=SC2154  # names from settings.sh

readonly pki=$state/pki

make_certificates() {
    if [[ -e $pki/done ]]; then
        return
    fi
    mkdir -p "$pki"
    chmod 700 "$pki"
    new_key ca
    openssl req -x509 -new -key "$pki/ca.key" -subj /CN=swiftlet-test-ca -days 3650 -out "$pki/ca.crt"
    openssl genrsa -out "$pki/service-accounts.key" 2048 2>/dev/null
    openssl rsa -in "$pki/service-accounts.key" -pubout -out "$pki/service-accounts.pub" 2>/dev/null
    new_certificate apiserver /CN=kube-apiserver "$(api_server_names)"
    new_certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
    new_user admin /O=system:masters/CN=admin
    new_user controller-manager /CN=system:kube-controller-manager
    new_user scheduler /CN=system:kube-scheduler
    new_user proxy /CN=system:kube-proxy
    local number
    for number in {1..9}; do
        new_user "n$number" "/O=system:nodes/CN=system:node:n$number"
    done
    touch "$pki/done"
}

api_server_names() {
    printf 'DNS:%s,' localhost kubernetes kubernetes.default kubernetes.default.svc \
        kubernetes.default.svc.cluster.local
    printf 'IP:127.0.0.1,IP:%s,IP:%s' "$control_plane_ip" "$api_ip"
}

new_key() {
    openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"
}

# new_certificate NAME SUBJECT [ALTERNATIVE_NAMES]
new_certificate() {
    new_key "$1"
    openssl req -new -key "$pki/$1.key" -subj "$2" -out "$pki/$1.csr"
    openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 3650 \
        -extfile <(printf 'extendedKeyUsage=clientAuth,serverAuth\n%s' "${3:+subjectAltName=$3}") \
        -out "$pki/$1.crt" 2>/dev/null
    rm "$pki/$1.csr"
}

# new_user NAME SUBJECT: a certificate, and a kubeconfig that shows it.
new_user() {
    new_certificate "$1" "$2"
    (
        umask 077
        cat >"$state/$1.conf" <<CONFIG
apiVersion: v1
kind: Config
clusters:
  - name: swiftlet
    cluster: {server: "https://$control_plane_ip:6443", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}
users:
  - name: $1
    user:
      client-certificate-data: $(base64 -w0 "$pki/$1.crt")
      client-key-data: $(base64 -w0 "$pki/$1.key")
contexts:
  - name: swiftlet
    context: {cluster: swiftlet, user: $1}
current-context: swiftlet
CONFIG
    )
}
