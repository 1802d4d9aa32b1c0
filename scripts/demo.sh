#!/usr/bin/env bash
# Sets the machine up, builds, and generates text with four ranks: each works on prompts of its own, and the experts of a
# small model (tests/data/tiny-qwen3-moe, random weights: the text means nothing) are split over all. The tokens are
# compared with those of one rank. On the GPUs, if there are some, else on the host; `scripts/demo.sh --device host` stays
# there.
#   scripts/demo.sh [flags of moelink-generate...]    they come behind the demo's own
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

case ${1-} in -h | --help) show_help && exit 0 ;; esac

install_missing "$needs_of_build" "$useful_for_engine"
build default moelink-generate

device=host
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then device=auto; fi  # auto: if they can be used

generate() {  # <flags...>
  build/bin/moelink-generate tests/data/tiny-qwen3-moe --device "$device" --type fp32 --max-tokens 24 \
    --prompt 'def forward(self, input):' --prompt 'The dispatch kernel' --prompt 'expert parallel' --prompt 'tokens, ' "$@"
}
# Prompts finish in any order.
sorted() { awk '/^== /{number = $3} {print number "\t" $0}' | sort -s -n -k 1,1 | cut -f 2-; }

say "One rank"
one=$(generate --ranks 1 "$@" | sorted)
say "Four ranks"
four=$(generate --ranks 4 "$@" | sorted)
printf '%s\n' "$four"
if [[ $one != "$four" ]]; then
  die "four ranks found other tokens than one, which found:
$one"
fi
say "Done: four ranks found the tokens that one rank found."
