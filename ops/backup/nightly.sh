#!/usr/bin/env bash
# A backup of truth for cron or a timer: taken, looked at whole, encrypted if age is set up, and the oldest ones dropped.
# Settings as for any memriver command (MEMRIVER_DATABASE_URL, MEMRIVER_KAFKA_BOOTSTRAP, MEMRIVER_HASH_KEY, …), and:
#   BACKUP_DIR        where the files go (required)
#   BACKUP_KEEP       how many files stay; 14 if not set
#   BACKUP_RECIPIENT  an age recipient (https://age-encryption.org); without it the file is only readable by this user
set -euo pipefail

dir=${BACKUP_DIR:?set BACKUP_DIR to a directory}
keep=${BACKUP_KEEP:-14}
[[ $keep =~ ^[1-9][0-9]*$ ]] || { echo "nightly: BACKUP_KEEP is a number above 0" >&2; exit 2; }
umask 077
mkdir -p "$dir"
file=$dir/memriver-$(date -u +%Y%m%dT%H%M%SZ).backup

memriver backup "$file"
# A backup that nobody has read is none.
memriver restore "$file" --dry-run
if [ -n "${BACKUP_RECIPIENT:-}" ]; then
    age --encrypt --recipient "$BACKUP_RECIPIENT" --output "$file.age.part" "$file"
    mv "$file.age.part" "$file.age"
    rm "$file"
fi
# Names sort by time. Only what this script made is dropped.
find "$dir" -maxdepth 1 -type f -name 'memriver-*Z.backup*' | sort -r | tail -n +$((keep + 1)) | while IFS= read -r old; do
    rm -- "$old"
done
