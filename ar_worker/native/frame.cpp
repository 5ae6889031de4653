// One frame of the Dual-AR model on a CPU in fp32: slow step, draws, fast passes and record, for rows of any sequences.
//
// Plain C++17 with the vector extensions of GCC and Clang; no library but the standard one. Each row goes through the
// same operations in the same order however many rows there are, so its result does not depend on them. Formulas and
// state are those of ar_worker/frame.py, ops.py, sampling.py and device_state.py, which this is checked against.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace {

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t u16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t half16 __attribute__((vector_size(32), aligned(2), may_alias));

constexpr int TILE = 64;      // columns of a packed matrix that lie together
constexpr int VECTORS = TILE / 16;
constexpr int ROW_BLOCK = 6;  // rows that share a load of weights: their sums fit in 32 registers
constexpr int WINDOW = 10, FRAME = 11, CODEBOOKS = 10;
constexpr int LENGTH_AT = 0, NUMBER_AT = 1, SEED_AT = 2, WINDOW_AT = 3, LAST_AT = 13, STATE = 24;
constexpr int MOST_RANKS = 256;
constexpr double TIE_BREAK = 1e-10;
constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

inline v16 load(const float* p) { return *reinterpret_cast<const v16*>(p); }
inline void store(float* p, v16 x) { *reinterpret_cast<v16*>(p) = x; }
inline v16 splat(float x) { return v16{} + x; }

inline float sum(v16 x) {
    v8 a[2];
    std::memcpy(a, &x, sizeof a);
    a[0] += a[1];
    v4 b[2];
    std::memcpy(b, a, sizeof b);
    b[0] += b[1];
    return (b[0][0] + b[0][2]) + (b[0][1] + b[0][3]);
}

// e^x within 2 units in the last place; below -87 about 1e-38.
inline v16 exponential(v16 x) {
    const float lowest = -87.3f, highest = 88.3f, magic = 12582912.0f;
    x = x < lowest ? splat(lowest) : x;
    x = x > highest ? splat(highest) : x;
    v16 n = (x * 1.44269504088896341f + magic) - magic;
    v16 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    v16 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    i16 power = (__builtin_convertvector(n, i16) + 127) << 23;
    v16 scale;
    std::memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

float dot(const float* a, const float* b, int n) {
    v16 total{};
    int i = 0;
    for (; i + 16 <= n; i += 16) total += load(a + i) * load(b + i);
    float rest = 0;
    for (; i < n; ++i) rest += a[i] * b[i];
    return sum(total) + rest;
}

// Threads -------------------------------------------------------------------------------------------------------------

// Helpers that take parts of a job as they come to them: one that is not scheduled delays nobody. Which thread takes a
// part never changes its result.
class Helpers {
public:
    explicit Helpers(int count) {
        for (int i = 0; i < count; ++i) threads_.emplace_back([this] { serve(); });
    }

    ~Helpers() {
        stopped_ = true;
        publish(generation() + 1, 0);
        for (std::thread& thread : threads_) thread.join();
    }

    // part(count - 1) to part(0), by any threads.
    template <typename Part>
    void run(int count, const Part& part) {
        if (threads_.empty() || count < 2) {
            for (int i = 0; i < count; ++i) part(i);
            return;
        }
        call_ = [](const void* context, int i) { (*static_cast<const Part*>(context))(i); };
        context_ = &part;
        finished_ = 0;
        uint32_t own = generation() + 1;
        publish(own, count);
        work(own);
        while (finished_.load(std::memory_order_acquire) < count) std::this_thread::yield();
    }

private:
    typedef void (*Call)(const void*, int);
    static constexpr int SPINS = 20000;  // some 50 microseconds, as long as the gap between two products

    uint32_t generation() const { return static_cast<uint32_t>(state_.load(std::memory_order_acquire) >> 32); }

    void publish(uint32_t generation, int count) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            state_.store(static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(count),
                         std::memory_order_release);
        }
        if (sleepers_.load() > 0) changed_.notify_all();
    }

    // Takes parts of the job ``own`` until none is left. The next job is set up only once all parts of this one are done,
    // so what is read here belongs to the part that is then taken.
    void work(uint32_t own) {
        Call call = call_.load(std::memory_order_relaxed);
        const void* context = context_.load(std::memory_order_relaxed);
        uint64_t seen = state_.load(std::memory_order_acquire);
        while (static_cast<uint32_t>(seen >> 32) == own && (seen & 0xffffffff) > 0) {
            if (!state_.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) continue;
            call(context, static_cast<int>((seen & 0xffffffff) - 1));
            finished_.fetch_add(1, std::memory_order_acq_rel);
            seen = state_.load(std::memory_order_acquire);
        }
    }

    void serve() {
        uint32_t known = 0;
        while (!stopped_) {
            for (int i = 0; i < SPINS && generation() == known; ++i) {}
            if (generation() == known) {
                std::unique_lock<std::mutex> lock(mutex_);
                ++sleepers_;
                changed_.wait(lock, [&] { return generation() != known; });
                --sleepers_;
            }
            known = generation();
            if (!stopped_) work(known);
        }
    }

    std::vector<std::thread> threads_;
    std::atomic<bool> stopped_{false};
    std::atomic<uint64_t> state_{0};  // generation of the job, and how many of its parts are left to take
    std::atomic<int> finished_{0}, sleepers_{0};
    std::atomic<Call> call_{nullptr};
    std::atomic<const void*> context_{nullptr};
    std::mutex mutex_;
    std::condition_variable changed_;
};

// Matrix products -----------------------------------------------------------------------------------------------------

// Weights are kept in the least of these types that holds the checkpoint's values exactly; sums are fp32 in any case.
struct Fp32 {
    typedef float type;
    static v16 load16(const float* p) { return load(p); }
};

struct Bf16 {
    typedef uint16_t type;
    static v16 load16(const uint16_t* p) {
#ifdef __AVX512F__
        __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#else
        u16 bits = __builtin_convertvector(*reinterpret_cast<const half16*>(p), u16) << 16;
#endif
        v16 x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
};

#ifdef __F16C__
struct Fp16 {
    typedef uint16_t type;
    static v16 load16(const uint16_t* p) {
#ifdef __AVX512F__
        __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
        __m256 x[2] = {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
#endif
        v16 result;
        std::memcpy(&result, &x, sizeof result);
        return result;
    }
};
#endif

template <typename Weight, int ROWS>
void tile_product(const float* x, int in, const typename Weight::type* w, float* out, int stride, int columns) {
    v16 sums[ROWS][VECTORS] = {};
    for (int i = 0; i < in; ++i, w += TILE) {
        v16 weights[VECTORS];
        for (int v = 0; v < VECTORS; ++v) weights[v] = Weight::load16(w + 16 * v);
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < VECTORS; ++v) sums[r][v] += weights[v] * x[r * in + i];
    }
    for (int r = 0; r < ROWS; ++r) std::memcpy(out + r * stride, sums[r], columns * sizeof(float));
}

// The columns of one tile, for all rows.
template <typename Weight>
void tile_rows(const float* x, int rows, int in, const void* packed, float* out, int width, int tile) {
    typedef void (*TileProduct)(const float*, int, const typename Weight::type*, float*, int, int);
    static constexpr TileProduct PRODUCTS[ROW_BLOCK] = {tile_product<Weight, 1>, tile_product<Weight, 2>,
                                                        tile_product<Weight, 3>, tile_product<Weight, 4>,
                                                        tile_product<Weight, 5>, tile_product<Weight, 6>};
    const auto* w = static_cast<const typename Weight::type*>(packed) + static_cast<size_t>(tile) * in * TILE;
    int blocks = (rows + ROW_BLOCK - 1) / ROW_BLOCK, columns = std::min(TILE, width - tile * TILE);
    for (int block = 0, row = 0; block < blocks; ++block) {
        int count = (rows - row + (blocks - block) - 1) / (blocks - block);
        PRODUCTS[count - 1](x + static_cast<size_t>(row) * in, in, w,
                            out + static_cast<size_t>(row) * width + tile * TILE, width, columns);
        row += count;
    }
}

enum WeightType { FP32 = 0, BF16 = 1, FP16 = 2 };
constexpr size_t PART = 1 << 16;  // multiplications that are worth a part of their own

struct Engine {
    WeightType type;
    Helpers helpers;

    Engine(int type, int threads) : type(static_cast<WeightType>(type)), helpers(threads - 1) {}

    // x [rows, in] times a packed matrix [in, width], plus bias [width] if there is one.
    void product(const float* x, int rows, int in, const void* packed, const float* bias, float* out, int width) {
        int tiles = (width + TILE - 1) / TILE;
        int each = static_cast<int>(std::max<size_t>(1, PART / (static_cast<size_t>(in) * TILE * rows)));
        helpers.run((tiles + each - 1) / each, [&](int part) {
            for (int tile = part * each; tile < std::min(tiles, (part + 1) * each); ++tile) {
                if (type == FP32) tile_rows<Fp32>(x, rows, in, packed, out, width, tile);
                if (type == BF16) tile_rows<Bf16>(x, rows, in, packed, out, width, tile);
#ifdef __F16C__
                if (type == FP16) tile_rows<Fp16>(x, rows, in, packed, out, width, tile);
#endif
            }
        });
        if (bias)
            for (int row = 0; row < rows; ++row)
                for (int i = 0; i < width; ++i) out[static_cast<size_t>(row) * width + i] += bias[i];
    }
};

// Elementwise ---------------------------------------------------------------------------------------------------------

float inverse_rms(const float* x, int n, float eps) { return 1.0f / std::sqrt(dot(x, x, n) / n + eps); }

void rms_norm(const float* x, int rows, int dim, const float* weight, float eps, float* out) {
    for (int row = 0; row < rows; ++row, x += dim, out += dim) {
        float scale = inverse_rms(x, dim, eps);
        for (int i = 0; i < dim; ++i) out[i] = x[i] * scale * weight[i];
    }
}

void add(float* x, const float* delta, size_t n) {
    for (size_t i = 0; i < n; ++i) x[i] += delta[i];
}

// silu(gate) * up, of [rows, 2 * inner], gate and up side by side.
void swiglu(const float* x, int rows, int inner, float* out) {
    for (int row = 0; row < rows; ++row, x += 2 * inner, out += inner) {
        int i = 0;
        for (; i + 16 <= inner; i += 16) {
            v16 gate = load(x + i);
            store(out + i, gate / (exponential(-gate) + 1.0f) * load(x + inner + i));
        }
        for (; i < inner; ++i) out[i] = x[i] / (1.0f + std::exp(-x[i])) * x[inner + i];
    }
}

}  // namespace

// The model, as ar_worker/native/binding.py fills it in. Matrices are packed: [out / 64][in][64], the last tile padded.

extern "C" {

struct Layer {
    const float* attention_norm;
    const void* wqkv;
    const float *wqkv_bias, *qk_norm;
    const void* wo;
    const float *wo_bias, *ffn_norm;
    const void *w13, *w2;
};

struct Stack {
    const Layer* layers;
    const float* rotation;  // [positions][head_dim / 2][cos, sin]
    int64_t count, dim, heads, kv_heads, head_dim, inner;
    float eps;
};

struct Model {
    Stack slow, fast;
    const float *embeddings, *codebook_embeddings, *slow_norm;
    const void *head, *project_in;
    const float *project_bias, *fast_embeddings, *fast_projected, *fast_norm;
    const void* fast_output;
    int64_t codebook_size, semantic_begin, semantic_end, im_end, scaled, norm_fast_input;
    float* pool;  // [layers][2][kv_heads][positions][head_dim]
    int64_t pool_positions, page_size;
    int64_t* state;                  // [slots + 1][24]
    const float* temperatures;       // [slots + 1][3]
    const float* limits;             // [slots + 1][3][256]
    const int32_t* pages;            // [slots + 1][table_width]
    int64_t table_width;
    const float* hidden;             // [slots + 1][dim]
    void* engine;                    // of shoal_engine
};

}  // extern "C"

namespace {

template <int WIDTH, typename Value>
void weighted_sum(int n, int c, const Value& value, const float* weights, float scale, float* out) {
    v16 mixed[WIDTH] = {};
    for (int i = 0; i < n; ++i) {
        const float* from = value(i) + c;
        for (int v = 0; v < WIDTH; ++v) mixed[v] += load(from + 16 * v) * weights[i];
    }
    for (int v = 0; v < WIDTH; ++v) store(out + 16 * v, mixed[v] * scale);
}

// Attention of one query head group: scores over ``n`` keys that ``key(i)`` finds, softmax, weighted sum of values.
template <typename Key, typename Value>
void attend(const float* q, int group, int d, int n, const Key& key, const Value& value, float* scores, float* out) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    for (int g = 0; g < group; ++g, q += d, out += d) {
        float best = -INFINITY;
        for (int i = 0; i < n; ++i) {
            scores[i] = dot(q, key(i), d) * scale;
            best = std::max(best, scores[i]);
        }
        int padded = (n + 15) / 16 * 16;
        for (int i = n; i < padded; ++i) scores[i] = -INFINITY;
        v16 totals{};
        for (int i = 0; i < padded; i += 16) {
            v16 weight = exponential(load(scores + i) - best);
            store(scores + i, weight);
            totals += weight;
        }
        float inverse = 1.0f / sum(totals);
        int c = 0;
        for (; c + 64 <= d; c += 64) weighted_sum<4>(n, c, value, scores, inverse, out + c);
        for (; c < d; c += 16) weighted_sum<1>(n, c, value, scores, inverse, out + c);
    }
}

void normalize_and_rotate(float* qk, const Stack& s, const float* weight, const float* rotation) {
    int heads = s.heads + s.kv_heads, d = s.head_dim;
    for (int h = 0; h < heads; ++h, qk += d) {
        if (weight) {
            float scale = inverse_rms(qk, d, s.eps);
            for (int i = 0; i < d; ++i) qk[i] = qk[i] * scale * weight[h * d + i];
        }
        for (int i = 0; i < d; i += 2) {
            float a = qk[i], b = qk[i + 1];
            qk[i] = a * rotation[i] - b * rotation[i + 1];
            qk[i + 1] = a * rotation[i + 1] + b * rotation[i];
        }
    }
}

inline Engine& engine_of(const Model& m) { return *static_cast<Engine*>(m.engine); }

struct Buffers {
    std::vector<float> x, normed, qkv, attended, delta, wide, inner, logits, hidden;
    std::vector<float> fast_kv;  // [layer][row][2][kv_heads][10][head_dim]
};

void grow(std::vector<float>& buffer, size_t size) {
    if (buffer.size() < size) buffer.resize(size);
}

// All blocks of a stack over rows x. ``position(row)`` is where a row stands; ``keep(layer, row, kv)``
// keeps its key and value, ``attention(layer, qkv, out)`` attends for all rows. ``first(row)``: the first block's projection of the row, where that is known.
template <typename Position, typename Keep, typename Attention, typename First>
void run_stack(Engine& e, const Stack& s, float* x, int rows, Buffers& b, const Position& position, const Keep& keep,
               const Attention& attention, const First& first) {
    int d = s.head_dim, width = (s.heads + 2 * s.kv_heads) * d;
    grow(b.normed, static_cast<size_t>(rows) * s.dim);
    grow(b.qkv, static_cast<size_t>(rows) * width);
    grow(b.attended, static_cast<size_t>(rows) * s.heads * d);
    grow(b.delta, static_cast<size_t>(rows) * s.dim);
    grow(b.wide, static_cast<size_t>(rows) * 2 * s.inner);
    grow(b.inner, static_cast<size_t>(rows) * s.inner);
    for (int index = 0; index < s.count; ++index) {
        const Layer& layer = s.layers[index];
        if (index || !first(0)) {
            rms_norm(x, rows, s.dim, layer.attention_norm, s.eps, b.normed.data());
            e.product(b.normed.data(), rows, s.dim, layer.wqkv, layer.wqkv_bias, b.qkv.data(), width);
        } else {
            for (int row = 0; row < rows; ++row)
                std::memcpy(b.qkv.data() + static_cast<size_t>(row) * width, first(row), width * sizeof(float));
        }
        for (int row = 0; row < rows; ++row) {
            float* qkv = b.qkv.data() + static_cast<size_t>(row) * width;
            normalize_and_rotate(qkv, s, layer.qk_norm, s.rotation + position(row) * d);
            keep(index, row, qkv + s.heads * d);
        }
        attention(index, b.qkv.data(), b.attended.data());
        e.product(b.attended.data(), rows, s.heads * d, layer.wo, layer.wo_bias, b.delta.data(), s.dim);
        add(x, b.delta.data(), static_cast<size_t>(rows) * s.dim);
        rms_norm(x, rows, s.dim, layer.ffn_norm, s.eps, b.normed.data());
        e.product(b.normed.data(), rows, s.dim, layer.w13, nullptr, b.wide.data(), 2 * s.inner);
        swiglu(b.wide.data(), rows, s.inner, b.inner.data());
        e.product(b.inner.data(), rows, s.inner, layer.w2, nullptr, b.delta.data(), s.dim);
        add(x, b.delta.data(), static_cast<size_t>(rows) * s.dim);
    }
}

void embed(const Model& m, const int64_t* frame, float* x) {
    int dim = m.slow.dim;
    const float* text = m.embeddings + frame[0] * dim;
    std::memcpy(x, text, dim * sizeof(float));
    if (frame[0] < m.semantic_begin || frame[0] > m.semantic_end) return;
    for (int i = 0; i < dim; ++i) x[i] = 0;
    for (int book = 0; book < CODEBOOKS; ++book)
        add(x, m.codebook_embeddings + (book * m.codebook_size + frame[1 + book]) * dim, dim);
    add(x, text, dim);
    if (m.scaled) {
        float root = static_cast<float>(std::sqrt(CODEBOOKS + 1.0));
        for (int i = 0; i < dim; ++i) x[i] /= root;
    }
}

// Slow output x [rows, dim] of the last frames of slots.
void run_slow(const Model& m, const std::vector<int64_t>& slots, float* x, Buffers& b) {
    const Stack& s = m.slow;
    int d = s.head_dim, group = s.heads / s.kv_heads;
    int64_t head_stride = m.pool_positions * d, layer_stride = 2 * s.kv_heads * head_stride;
    auto position = [&](int row) { return m.state[slots[row] * STATE + LENGTH_AT]; };
    std::vector<std::vector<int64_t>> places(slots.size());  // of the positions of each row's sequence, in a head's pool
    for (size_t row = 0; row < slots.size(); ++row)
        for (int64_t at = 0; at <= position(static_cast<int>(row)); ++at) {
            int64_t page = m.pages[slots[row] * m.table_width + at / m.page_size];
            places[row].push_back((page * m.page_size + at % m.page_size) * d);
        }
    auto keep = [&](int layer, int row, const float* kv) {
        float* to = m.pool + layer * layer_stride + places[row].back();
        for (int part = 0; part < 2 * s.kv_heads; ++part, to += head_stride, kv += d)
            for (int i = 0; i < d; ++i) to[i] = std::isfinite(kv[i]) ? kv[i] : 0.0f;
    };
    int width = static_cast<int>((s.heads + 2 * s.kv_heads) * d);
    auto attention = [&](int layer, const float* qkv, float* out) {
        engine_of(m).helpers.run(static_cast<int>(slots.size() * s.kv_heads), [&](int part) {
            static thread_local std::vector<float> scores;
            int row = part / static_cast<int>(s.kv_heads), h = part % static_cast<int>(s.kv_heads);
            const int64_t* at = places[row].data();
            int n = static_cast<int>(places[row].size());
            grow(scores, n + 16);
            const float* keys = m.pool + layer * layer_stride + h * head_stride;
            const float* values = keys + s.kv_heads * head_stride;
            attend(qkv + static_cast<size_t>(row) * width + h * group * d, group, d, n,
                   [&](int i) { return keys + at[i]; }, [&](int i) { return values + at[i]; }, scores.data(),
                   out + (static_cast<size_t>(row) * s.heads + h * group) * d);
        });
    };
    for (size_t row = 0; row < slots.size(); ++row)
        embed(m, m.state + slots[row] * STATE + LAST_AT, x + row * s.dim);
    run_stack(engine_of(m), s, x, static_cast<int>(slots.size()), b, position, keep, attention,
              [](int) -> const float* { return nullptr; });
}

// Draws ---------------------------------------------------------------------------------------------------------------

uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    return (x ^ (x >> 27)) * 0x94D049BB133111EBull;
}

struct Candidate {
    double order;
    int id;
    bool operator<(const Candidate& other) const { return order < other.order; }
};

// The candidates of one row, best first, found as far as they are asked for.
class Ranking {
public:
    Ranking(const float* logits, int n) : logits_(logits), ranks_(std::min(n, MOST_RANKS)) {
        heap_.resize(n);
        best_ = -INFINITY;
        for (int i = 0; i < n; ++i) {
            heap_[i] = {logits[i] - i * TIE_BREAK, i};
            best_ = std::max(best_, logits[i]);
        }
        std::make_heap(heap_.begin(), heap_.end());
        v16 totals{};
        int i = 0;
        for (; i + 16 <= n; i += 16) totals += exponential(load(logits + i) - best_);
        double rest = 0;
        for (; i < n; ++i) rest += std::exp(logits[i] - best_);
        total_ = static_cast<float>(sum(totals) + rest);
    }

    int ranks() const { return ranks_; }
    int id(int rank) { find(rank); return ids_[rank]; }
    float logit(int rank) { find(rank); return logits_[ids_[rank]] - logits_[ids_[0]]; }
    float mass(int rank) { find(rank); return mass_[rank]; }

private:
    void find(int rank) {
        while (static_cast<int>(ids_.size()) <= rank) {
            std::pop_heap(heap_.begin(), heap_.end());
            int id = heap_.back().id;
            heap_.pop_back();
            ids_.push_back(id);
            sum_ += static_cast<float>(std::exp(logits_[id] - best_) / total_);
            mass_.push_back(static_cast<float>(sum_));
        }
    }

    const float* logits_;
    int ranks_;
    float best_, total_;
    double sum_ = 0;
    std::vector<Candidate> heap_;
    std::vector<int> ids_;
    std::vector<float> mass_;
};

// The rank drawn: that with the largest log(u) / p of those the limits keep. Masses ascend and limits do not, so behind
// the first rank that is dropped all are.
template <typename Token>
int draw(Ranking& ranking, float temperature, const float* limits, uint64_t key, const Token& token) {
    int best = 0;
    double highest = -INFINITY;
    for (int rank = 0; rank < ranking.ranks() && ranking.mass(rank) <= limits[rank]; ++rank) {
        uint64_t bits = mix(key + static_cast<uint64_t>(token(ranking.id(rank))) * GOLDEN) >> 12;
        double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-52;
        double value = std::log(uniform) / std::exp(ranking.logit(rank) / temperature);
        if (value > highest) {
            highest = value;
            best = rank;
        }
    }
    return ranking.id(best);
}

struct Sampler {
    const float *temperatures, *limits;
    uint64_t row;

    Sampler(const Model& m, int64_t slot)
        : temperatures(m.temperatures + slot * 3), limits(m.limits + slot * 3 * MOST_RANKS) {
        const int64_t* state = m.state + slot * STATE;
        row = mix(static_cast<uint64_t>(state[SEED_AT]) + static_cast<uint64_t>(state[NUMBER_AT]) * GOLDEN);
    }

    uint64_t key(int codebook, int number) const { return mix(row + (codebook * 2 + number + 1) * GOLDEN); }
};

int64_t draw_token(const Model& m, const Sampler& sampler, const float* logits, const int64_t* state, bool begins) {
    auto token = [&](int id) { return id < m.codebook_size ? m.semantic_begin + id : m.im_end; };
    Ranking ranking(logits, static_cast<int>(m.codebook_size) + 1);
    int64_t drawn = token(draw(ranking, sampler.temperatures[0], sampler.limits, sampler.key(0, 0), token));
    const int64_t* window = state + WINDOW_AT;
    bool repeated = !begins && drawn != m.im_end && std::find(window, window + WINDOW, drawn) != window + WINDOW;
    if (!repeated) return drawn;
    return token(draw(ranking, sampler.temperatures[1], sampler.limits + MOST_RANKS, sampler.key(0, 1), token));
}

// The fast stack ------------------------------------------------------------------------------------------------------

// ``length`` further positions of each row from ``start`` on; x [rows * length, dim] is overwritten.
template <typename First>
void run_fast(const Model& m, float* x, int rows, int start, int length, Buffers& b, const First& first) {
    const Stack& s = m.fast;
    int d = s.head_dim, group = s.heads / s.kv_heads;
    size_t head_stride = CODEBOOKS * d, part_stride = s.kv_heads * head_stride, row_stride = 2 * part_stride;
    grow(b.fast_kv, s.count * rows * row_stride);
    int width = static_cast<int>((s.heads + 2 * s.kv_heads) * d);
    auto position = [&](int row) { return start + row % length; };
    auto base = [&](int layer, int row) { return b.fast_kv.data() + (layer * rows + row / length) * row_stride; };
    auto keep = [&](int layer, int row, const float* kv) {
        float* to = base(layer, row) + position(row) * d;
        for (int part = 0; part < 2 * s.kv_heads; ++part, to += head_stride, kv += d)
            std::memcpy(to, kv, d * sizeof(float));
    };
    auto attention = [&](int layer, const float* qkv, float* out) {
        float scores[CODEBOOKS + 16];
        for (int row = 0; row < rows * length; ++row)
            for (int h = 0; h < s.kv_heads; ++h) {
                const float* keys = base(layer, row) + h * head_stride;
                attend(qkv + static_cast<size_t>(row) * width + h * group * d, group, d, position(row) + 1,
                       [&](int i) { return keys + i * d; }, [&](int i) { return keys + part_stride + i * d; }, scores,
                       out + (static_cast<size_t>(row) * s.heads + h * group) * d);
            }
    };
    run_stack(engine_of(m), s, x, rows * length, b, position, keep, attention, first);
}

// Logits [rows, codebook_size] of fast output x, whose rows lie ``stride`` apart.
void fast_logits(const Model& m, const float* x, int rows, int stride, Buffers& b) {
    int dim = m.fast.dim;
    grow(b.normed, static_cast<size_t>(rows) * dim);
    grow(b.logits, static_cast<size_t>(rows) * (m.codebook_size + 1));
    for (int row = 0; row < rows; ++row)
        rms_norm(x + static_cast<size_t>(row) * stride, 1, dim, m.fast_norm, m.fast.eps, b.normed.data() + row * dim);
    engine_of(m).product(b.normed.data(), rows, dim, m.fast_output, nullptr, b.logits.data(), m.codebook_size);
}

void record(const Model& m, int64_t slot, const int64_t* advance, bool begins, int64_t* frame) {
    int64_t* state = m.state + slot * STATE;
    if (!begins && state[LAST_AT] == m.im_end) std::memcpy(frame, state + LAST_AT, FRAME * sizeof(int64_t));
    if (begins) {
        std::fill_n(state + WINDOW_AT, WINDOW, 0);
    } else if (frame[0] != m.im_end) {
        std::copy(state + WINDOW_AT + 1, state + WINDOW_AT + WINDOW, state + WINDOW_AT);
        state[WINDOW_AT + WINDOW - 1] = frame[0];
    }
    state[LENGTH_AT] += advance[0];
    state[NUMBER_AT] += advance[1];
    std::memcpy(state + LAST_AT, frame, FRAME * sizeof(int64_t));
}

void keep_logits(float* trace, int rows, int codebook, int width, const float* logits, int64_t stride) {
    if (!trace) return;
    for (int row = 0; row < rows; ++row)
        std::memcpy(trace + (row * CODEBOOKS + codebook) * stride, logits + static_cast<size_t>(row) * width,
                    width * sizeof(float));
}

}  // namespace

extern "C" {

// A frame for each of ``rows`` rows, recorded in the state. Arguments as the fields of device_state.FrameRows; ``output``
// int16 [rows][11]: ten codes, and 1 where the end token was drawn. ``trace``: null, or room for all logits,
// [rows][10][codebook_size + 1].
void shoal_frame(const Model* model, int64_t rows, const int64_t* slots, const int64_t* advance,
                 const uint8_t* prefilled, const uint8_t* begins, int16_t* output, float* trace) {
    static thread_local Buffers b;
    const Model& m = *model;
    int count = static_cast<int>(rows), dim = static_cast<int>(m.slow.dim), fast_dim = static_cast<int>(m.fast.dim);
    int64_t codes = m.codebook_size, stride = codes + 1;
    std::vector<int64_t> decoded;
    for (int row = 0; row < count; ++row)
        if (!prefilled[row]) decoded.push_back(slots[row]);
    grow(b.hidden, rows * dim);
    grow(b.x, rows * std::max<size_t>(dim, 2 * fast_dim));
    if (!decoded.empty()) run_slow(m, decoded, b.x.data(), b);
    for (int row = 0, next = 0; row < count; ++row) {
        const float* from = prefilled[row] ? m.hidden + slots[row] * dim : b.x.data() + dim * next++;
        std::memcpy(b.hidden.data() + static_cast<size_t>(row) * dim, from, dim * sizeof(float));
    }

    std::vector<float> normed(rows * dim), input(rows * fast_dim);
    rms_norm(b.hidden.data(), count, dim, m.slow_norm, m.slow.eps, normed.data());
    grow(b.logits, rows * stride);
    engine_of(m).product(normed.data(), count, dim, m.head, nullptr, b.logits.data(), static_cast<int>(stride));
    keep_logits(trace, count, 0, static_cast<int>(stride), b.logits.data(), stride);
    std::vector<Sampler> samplers;
    std::vector<int64_t> frames(rows * FRAME);
    for (int row = 0; row < count; ++row) {
        samplers.emplace_back(m, slots[row]);
        int64_t token = draw_token(m, samplers[row], b.logits.data() + row * stride, m.state + slots[row] * STATE,
                                   begins[row]);
        frames[row * FRAME] = token;
        frames[row * FRAME + 1] = std::clamp<int64_t>(token - m.semantic_begin, 0, codes - 1);
    }

    const float* conditioning = m.norm_fast_input ? normed.data() : b.hidden.data();
    if (m.project_in) {
        engine_of(m).product(conditioning, count, dim, m.project_in, m.project_bias, input.data(), fast_dim);
        conditioning = input.data();
    }
    int width = static_cast<int>((m.fast.heads + 2 * m.fast.kv_heads) * m.fast.head_dim);
    for (int book = 1; book < CODEBOOKS; ++book) {
        auto code = [&](int row) { return frames[row * FRAME + book]; };
        int length = book == 1 ? 2 : 1;
        for (int row = 0; row < count; ++row) {
            float* x = b.x.data() + static_cast<size_t>(row) * length * fast_dim;
            if (book == 1) std::memcpy(x, conditioning + static_cast<size_t>(row) * fast_dim, fast_dim * sizeof(float));
            std::memcpy(x + (length - 1) * fast_dim, m.fast_embeddings + code(row) * fast_dim, fast_dim * sizeof(float));
        }
        run_fast(m, b.x.data(), count, book == 1 ? 0 : book, length, b, [&](int row) -> const float* {
            return book == 1 ? nullptr : m.fast_projected + code(row) * width;
        });
        fast_logits(m, b.x.data() + (length - 1) * fast_dim, count, length * fast_dim, b);
        keep_logits(trace, count, book, static_cast<int>(codes), b.logits.data(), stride);
        for (int row = 0; row < count; ++row) {
            Ranking ranking(b.logits.data() + row * codes, static_cast<int>(codes));
            const Sampler& sampler = samplers[row];
            frames[row * FRAME + book + 1] = draw(ranking, sampler.temperatures[2], sampler.limits + 2 * MOST_RANKS,
                                                  sampler.key(book, 0), [](int id) { return id; });
        }
    }
    for (int row = 0; row < count; ++row) {
        int64_t* frame = frames.data() + row * FRAME;
        record(m, slots[row], advance + row * 2, begins[row], frame);
        for (int book = 0; book < CODEBOOKS; ++book)
            output[row * FRAME + book] = static_cast<int16_t>(frame[1 + book]);
        output[row * FRAME + CODEBOOKS] = frame[0] == m.im_end;
    }
}

// Threads and the type of the weights (0: fp32, 1: bf16, 2: fp16) of a model; kept for the life of the process.
void* shoal_engine(int64_t type, int64_t threads) {
    return new Engine(static_cast<int>(type), static_cast<int>(threads));
}

// Whether weights of this type can be read here.
int64_t shoal_knows(int64_t type) {
#ifdef __F16C__
    return type >= FP32 && type <= FP16;
#else
    return type >= FP32 && type <= BF16;
#endif
}

// Sizes of the structures above, to compare with the binding's.
int64_t shoal_sizes(int which) {
    return which == 0 ? sizeof(Layer) : which == 1 ? sizeof(Stack) : sizeof(Model);
}

}  // extern "C"
