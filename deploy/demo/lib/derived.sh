# shellcheck shell=bash
# Images that differ from another one in one thing: a definition of Apptainer's on a SIF that is there, built without privileges.

# derive_image NAME BASE DESCRIPTION: builds containers/images/derived/NAME.def on the image BASE of `make_image`, unless that was done
# before, and puts it into the catalogue by that name.
derive_image() {
    local name=$1 base=$2 description=$3 definition=$recipes_dir/derived/$1.def base_sif digest known sif
    read -r _ base_sif <"$images_dir/$base.built"
    digest=$({ echo "$base_sif" && cat "$definition"; } | sha256sum | cut -c1-32)
    known_of "$name"
    if [[ $known != "$digest" || ! -s $images_dir/${sif:-none} ]]; then
        # What it replaces is of no use to anybody: it is made for tests.
        [[ -z $sif ]] || rm -f "$images_dir/$sif" "$images_dir/$name.built"
        sif=$(derive_sif "$definition" "$images_dir/$base_sif")
        [[ $sif =~ ^[0-9a-f]{64}\.sif$ ]] || return 1
        printf '%s %s\n' "$digest" "$sif" >"$images_dir/$name.built"
    fi
    add_image "$name" "$description" "$sif"
}

# derive_sif DEFINITION SIF: prints the name of the new file in images_dir. In a container of the nodes' image, which has Apptainer, and
# there as one of its people: what `apptainer build --fakeroot` needs is what a node lets its people do. Settings by which the node's own
# packages came, apt's and the CA bundle, are lent to the build and stay out of the image. Whatever kills this, the container ends and goes.
derive_sif() (
    set -e
    builder=eirene-demo-derive-$$
    new=$images_dir/.derived-$$.new
    trap 'dk rm -f "$builder" >/dev/null 2>&1 || true; rm -f "$new"' EXIT
    {
        dk run --detach --rm --init --name "$builder" --label org.eirene.demo=1 --device /dev/fuse --cap-add SYS_ADMIN \
            --security-opt apparmor=unconfined --security-opt seccomp=unconfined --security-opt systempaths=unconfined \
            --entrypoint /bin/sleep "$project-node" 1200
        dk cp "$2" "$builder:/var/tmp/base.sif"
        dk cp "$1" "$builder:/var/tmp/image.def"
        dk exec "$builder" sh -c 'chown ada /var/tmp/base.sif /var/tmp/image.def && install -d -o ada /home/ada'
        # Quick to write rather than small: nobody keeps it.
        dk exec --user ada -e APPTAINER_TMPDIR=/var/tmp -e APPTAINER_CACHEDIR=/var/tmp/cache "$builder" nice \
            apptainer build --fakeroot --mksquashfs-args "-comp zstd -Xcompression-level 1" --build-arg base=/var/tmp/base.sif \
            --bind /etc/apt/apt.conf.d:/etc/apt/apt.conf.d:ro \
            --bind /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro \
            /var/tmp/image.sif /var/tmp/image.def
        dk cp "$builder:/var/tmp/image.sif" "$new"
    } >&2
    sif=$(sha256sum <"$new" | cut -c1-64).sif
    mv "$new" "$images_dir/$sif"
    echo "$sif"
)
