#!/usr/bin/env bash
# Development services: installs what they need and is missing (Java, Maven, MariaDB through apt-get) and has Maven
# copy Kafka's published jars to .dev/kafka/lib. Safe to run again: what is there is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

lib=.dev/kafka/lib
pom=ops/dev/kafka/pom.xml
stamp=$lib/.pom.sha256

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

java_is_new_enough() {
    local major
    major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p;q') || return 1
    [ -n "$major" ] && [ "$major" -ge 17 ]
}
has_mariadb() { PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null; }
has_jars() { [ -f "$stamp" ] && sha256sum --check --status "$stamp"; }

packages=()
java_is_new_enough || packages+=(default-jre-headless)
has_mariadb || packages+=(mariadb-server)
has_jars || command -v mvn >/dev/null || packages+=(maven)

if [ ${#packages[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || die "please install ${packages[*]} (this script knows apt-get only)"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "please install ${packages[*]} as root: apt-get install ${packages[*]}"
        sudo -n true 2>/dev/null || [ -t 0 ] || die "sudo asks for a password here; run: sudo apt-get install ${packages[*]}"
        as_root=(sudo)
    fi
    say "apt-get install ${packages[*]}"
    # Debian starts a system MariaDB on installation unless policy-rc.d forbids it; ours runs from a folder of its own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
    fi
    apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null; }
    mkdir -p .dev
    # The package lists of a fresh machine are empty, those of an old one stale: update only if it does not work without.
    if ! apt install -y --no-install-recommends "${packages[@]}" >.dev/apt.log 2>&1; then
        if ! { apt update && apt install -y --no-install-recommends "${packages[@]}"; } >>.dev/apt.log 2>&1; then
            tail -n 20 .dev/apt.log >&2
            die "apt-get could not install ${packages[*]}"
        fi
    fi
    java_is_new_enough || die "Kafka 4 needs Java 17 or newer, found: $(java -version 2>&1 | head -n 1)"
    has_mariadb || die "mariadbd or mariadb-install-db is still missing"
fi

if ! has_jars; then
    say "resolving Kafka's jars with Maven"
    rm -rf "$lib" "$lib.part"
    mkdir -p "$lib.part"
    mvn --quiet --batch-mode -Dstyle.color=never --file "$pom" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD/$lib.part" </dev/null >&2 || die "Maven could not resolve Kafka's jars"
    sha256sum "$pom" >"$lib.part/$(basename "$stamp")"
    mv "$lib.part" "$lib"
fi
say "java, mariadbd and Kafka's jars are ready"
