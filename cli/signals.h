#pragma once

namespace qkv::cli {

// From here on a signal that ends the program (Ctrl-C, kill, a closed terminal or pipe) removes the
// temporary files first; old files are intact then, since results replace them by rename only. The
// program still ends by the signal, as shells expect. A signal that is ignored (nohup) stays so.
void clean_up_on_signals();

}  // namespace qkv::cli
