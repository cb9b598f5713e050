// The same as gemm.c, as C++ has it: what is opened is freed where its scope ends, and what fails is thrown. Usage: gemm FILE.twpack
//
//   c++ -std=c++17 -I include examples/gemm.cpp -o gemm LIB/libtilewright_capi.a -ldl -lpthread -lm
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "tilewright.h"

namespace {

void check(int32_t status) {
    if (status != TW_OK) {
        throw std::runtime_error(tw_last_error());
    }
}

// The functions of the driver that an engine has called before.
struct Engine {
    void *driver, *stream = nullptr;

    template <typename F>
    F *function(const char *name) const {
        void *found = dlsym(driver, name);
        if (found == nullptr) {
            throw std::runtime_error(std::string("the driver has no ") + name);
        }
        return reinterpret_cast<F *>(found);
    }

    Engine() {
        const char *library = std::getenv("TILEWRIGHT_LIBCUDA");
        driver = dlopen(library != nullptr ? library : "libcuda.so.1", RTLD_NOW);
        if (driver == nullptr) {
            throw std::runtime_error("this machine has no CUDA driver");
        }
        void *context = nullptr;
        int wrong = function<int(unsigned)>("cuInit")(0);
        wrong |= function<int(void **, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
        wrong |= function<int(void *)>("cuCtxSetCurrent")(context);
        wrong |= function<int(void **, unsigned)>("cuStreamCreate")(&stream, 1);
        if (wrong != 0) {
            throw std::runtime_error("the driver failed");
        }
    }
};

// Halves in memory of the GPU, in row-major order.
template <size_t Modes>
struct Halves {
    std::array<int64_t, Modes> shape;
    tw_tensor_t tensor{};

    Halves(const Engine &engine, std::array<int64_t, Modes> extents, bool writable) : shape(extents) {
        size_t bytes = 2;
        for (int64_t extent : shape) {
            bytes *= static_cast<size_t>(extent);
        }
        if (engine.function<int(uint64_t *, size_t)>("cuMemAlloc_v2")(&tensor.address, bytes) != 0) {
            throw std::runtime_error("the GPU has no more memory");
        }
        tensor.size = sizeof tensor;
        tensor.dtype = TW_DTYPE_F16;
        tensor.rank = Modes;
        tensor.writable = writable;
    }

    const tw_tensor_t *get() {
        tensor.shape = shape.data();
        return &tensor;
    }
};

// Products by the kernels of a pack.
class Library {
    struct Free {
        void operator()(tw_pack_t *pack) const { tw_pack_free(pack); }
        void operator()(tw_library_t *library) const { tw_library_free(library); }
    };
    std::unique_ptr<tw_pack_t, Free> pack;
    std::unique_ptr<tw_library_t, Free> library;

  public:
    explicit Library(const char *path) {
        tw_pack_t *opened = nullptr;
        check(tw_pack_open_file(path, &opened));
        pack.reset(opened);
        tw_library_t *made = nullptr;
        check(tw_library_open(opened, &made));
        library.reset(made);
    }

    void gemm(void *stream, const tw_tensor_t *a, const tw_tensor_t *b, const tw_tensor_t *c,
              const tw_gemm_options_t *options = nullptr) const {
        check(tw_library_gemm(library.get(), stream, a, b, c, options));
    }
};

int run(const char *path) {
    const Engine engine;
    const Library library(path);
    Halves<2> a(engine, {130, 64}, false), few(engine, {64, 64}, false), b(engine, {256, 64}, false);
    Halves<2> c(engine, {130, 256}, true), of_few(engine, {64, 256}, true);
    Halves<1> bias(engine, {256}, false);

    tw_operand_t operand{};
    operand.name = "bias";
    operand.arg.size = sizeof operand.arg;
    operand.arg.kind = TW_TENSOR;
    operand.arg.value.tensor = bias.get();
    tw_gemm_options_t options{};
    options.size = sizeof options;
    options.options = "epilogue=bias";
    options.operands = &operand;
    options.operand_count = 1;
    library.gemm(engine.stream, a.get(), b.get(), c.get(), &options);
    library.gemm(engine.stream, few.get(), b.get(), of_few.get());

    // What the pack has no kernels for is refused with words.
    options.options = "epilogue=gelu";
    options.operand_count = 0;
    try {
        library.gemm(engine.stream, a.get(), b.get(), c.get(), &options);
    } catch (const std::exception &error) {
        std::printf("two products; %s\n", error.what());
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return run(argc == 2 ? argv[1] : "gemm.twpack");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
