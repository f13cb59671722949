# shellcheck shell=bash
# A shared data set: a space for everybody to read, made as an admin makes it, and filled as root fills it.

data_dir=$demo_dir/data

# make_data_set NAME TITLE: makes the space NAME in the root `data` and fills it from data/NAME, unless that was done before.
make_data_set() {
    local name=$1 title=$2 digest
    digest=$({ hash_of "$data_dir/$name"; sha256sum <"$demo_dir/lib/data.sh"; } | sha256sum | cut -c1-32)
    if [[ $(on_portal cat "/var/lib/eirene/.demo-data-$name" 2>/dev/null || true) == "$digest" ]]; then
        return 0
    fi
    (
        # The admin's token is this step's alone.
        XDG_CONFIG_HOME=$(mktemp -d)
        export XDG_CONFIG_HOME
        trap 'eirene logout || true; rm -rf "$XDG_CONFIG_HOME"' EXIT
        password_of admin | eirene login --username admin --password-stdin --admin
        eirene admin space show "$name" --json || eirene admin space create "$name" --root data --title "$title"
        wait_until 60 "the space $name is there" is_present "$name"
    )
    fill "$name"
    echo "$digest" | on_portal tee "/var/lib/eirene/.demo-data-$name" >/dev/null
}

eirene() { "$bin_dir/eirene" --url "http://eirene.localhost:$port" "$@"; }

is_present() { eirene admin space show "$1" --json | grep -E '"state": *"present"' >/dev/null; }

# Root's, and for everybody to read; whatever was there of the same name gives way.
fill() {
    local made=$state_dir/data/$1
    rm -rf "$made"
    mkdir -p "$made"
    cp -r "$data_dir/$1/." "$made"
    "make_$1" "$made"
    tar -C "$made" --owner=root --group=root --mode='u=rwX,go=rX' -cf - . |
        dk exec -i portal tar -C "/shared/data/$1" --no-overwrite-dir -xf -
}

# A wave of 3 Hz in noise. The generator is Park and Miller's, which every awk reckons alike.
make_waves() {
    awk 'BEGIN {
        print "seconds,volts"
        seed = 42
        for (n = 0; n < 2000; n++) {
            seed = (seed * 16807) % 2147483647
            printf "%.2f,%.4f\n", n / 100, sin(6 * atan2(0, -1) * n / 100) + 4 * (seed / 2147483647 - 0.5)
        }
    }' >"$1/waves.csv"
}
