# Sourced by the scripts that make images without a base image.

# library CC DIR: copies the C library, and its licence, into the root directory of an image. NVIDIA's programs, which the container runtime
# adds, need more of it than the agent does.
library() {
  local cc=$1 root=$2 triple name
  triple=$("$cc" -dumpmachine)
  for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libgcc_s.so.1 libstdc++.so.6; do
    install -D -m 755 "$("$cc" -print-file-name=$name)" "$root/usr/lib/$triple/$name"
  done
  case $triple in
  x86_64*) name=lib64/ld-linux-x86-64.so.2 ;;
  aarch64*) name=lib/ld-linux-aarch64.so.1 ;;
  esac
  install -D -m 755 "$("$cc" -print-file-name="$(basename $name)")" "$root/$name"
  for name in libc6 libgcc-s1 libstdc++6; do
    if [ -e /usr/share/doc/$name/copyright ]; then install -D -m 644 /usr/share/doc/$name/copyright "$root/licenses/$name/copyright"; fi
  done
}
