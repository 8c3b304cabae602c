# What `runner image check` asks an image from inside, in the shell that commands get: /bin/sh must do. Each answer is a
# line of fields with tabs between.
say() {
    (IFS='	' && echo "$*")
}
for program in bash git python3 pip3 node npm rg curl jq gcc make ssh tar awk; do
    path=$(command -v "$program" 2>/dev/null) || continue
    option=--version
    [ "$program" != ssh ] || option=-V
    version=$("$program" "$option" 2>&1 </dev/null) || version=
    say program "$program" "$path" "${version%%
*}"
done
if python3 -c 'import ensurepip, venv' 2>/dev/null; then say has venv; fi
if ls --version 2>/dev/null | { IFS= read -r line && case $line in *GNU*) ;; *) false ;; esac; }; then say has gnu; fi
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
    if [ -s "$file" ]; then
        say certificates "$file"
        break
    fi
done
if echo '#!/bin/sh' >"$HOME/probe" && chmod 755 "$HOME/probe" && "$HOME/probe"; then say home "$HOME"; fi
