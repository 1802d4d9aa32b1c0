#include "engine/serve/serve.hpp"

int main(int argc, char** argv) { return moelink::engine::run_serve(argc, argv); }
