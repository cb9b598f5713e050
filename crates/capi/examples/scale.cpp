// The same as scale.c, as C++ has it: what is opened is freed where its scope ends, and what fails is thrown. Usage: scale FILE.twpack
//
//   c++ -std=c++17 -I include examples/scale.cpp -o scale LIB/libtilewright_capi.a -ldl -lpthread -lm
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tilewright.h"

namespace {

void check(int32_t status) {
    if (status != TW_OK) {
        throw std::runtime_error(tw_last_error());
    }
}

struct Free {
    void operator()(tw_pack_t *pack) const { tw_pack_free(pack); }
    void operator()(tw_kernel_t *kernel) const { tw_kernel_free(kernel); }
    void operator()(tw_plan_t *plan) const { tw_plan_free(plan); }
};

template <typename T>
using Handle = std::unique_ptr<T, Free>;

// The handle that a call makes.
template <typename T, typename Call>
Handle<T> made(Call call) {
    T *handle = nullptr;
    check(call(&handle));
    return Handle<T>(handle);
}

tw_arg_t pointer(uint64_t address) {
    tw_arg_t arg{};
    arg.size = sizeof arg;
    arg.kind = TW_POINTER;
    arg.value.pointer = address;
    return arg;
}

tw_arg_t number(float value) {
    tw_arg_t arg{};
    arg.size = sizeof arg;
    arg.kind = TW_F32;
    arg.value.f32 = value;
    return arg;
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

    uint64_t allocate(size_t bytes) const {
        uint64_t address = 0;
        if (function<int(uint64_t *, size_t)>("cuMemAlloc_v2")(&address, bytes) != 0) {
            throw std::runtime_error("the GPU has no more memory");
        }
        return address;
    }
};

int run(const char *path) {
    Engine engine;
    const int64_t n = 4096;
    const uint64_t x = engine.allocate(4 * n), y = engine.allocate(4 * n);

    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto pack = made<tw_pack_t>([&](tw_pack_t **out) { return tw_pack_open_memory(bytes.data(), bytes.size(), out); });
    auto kernel = made<tw_kernel_t>([&](tw_kernel_t **out) { return tw_pack_kernel(pack.get(), "scale", out); });
    auto plan = made<tw_plan_t>([&](tw_plan_t **out) { return tw_plan(kernel.get(), &n, 1, out); });
    const tw_arg_t args[] = {pointer(x), pointer(y), number(0.5f)};
    check(tw_launch(plan.get(), engine.stream, args, 3, nullptr));
    check(tw_launch(plan.get(), engine.stream, args, 3, nullptr));
    std::printf("launched twice\n");
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return run(argc == 2 ? argv[1] : "scale.twpack");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
