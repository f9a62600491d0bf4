#include "core/array/scan.h"

#include "core/array/number.h"

#include <math.h>
#include <string.h>

// The bits of a float without its sign grow with its magnitude: the highest of many says whether one of them is no number, and whether all are
// zero. Only where one is no number are they counted.
#define HALF_MAGNITUDE 0x7fff
#define HALF_INF 0x7c00
#define BRAIN_INF 0x7f80
#define SINGLE_MAGNITUDE 0x7fffffff
#define SINGLE_INF 0x7f800000
#define DOUBLE_MAGNITUDE INT64_C(0x7fffffffffffffff)
#define DOUBLE_INF INT64_C(0x7ff0000000000000)

// Adds elements of one width: the vectors first, then those that are left.
#define SCAN(name, type, magnitude)                                                                                    \
	static type highest_##name(const uint8_t *p, size_t count)                                                     \
	{                                                                                                              \
		typedef type vector __attribute__((vector_size(16)));                                                  \
		const size_t lanes = sizeof(vector) / sizeof(type);                                                    \
		vector high = {0}, mask = {0};                                                                         \
		type most = 0;                                                                                         \
		size_t i = 0;                                                                                          \
                                                                                                                       \
		mask |= (magnitude);                                                                                   \
		for (; i + lanes <= count; i += lanes) {                                                               \
			vector x, more;                                                                                \
                                                                                                                       \
			memcpy(&x, p + i * sizeof(type), sizeof(x));                                                   \
			x &= mask;                                                                                     \
			more = (vector)(x > high);                                                                     \
			high = (x & more) | (high & ~more);                                                            \
		}                                                                                                      \
		for (size_t k = 0; k < lanes; k++)                                                                     \
			most = high[k] > most ? high[k] : most;                                                        \
		for (; i < count; i++) {                                                                               \
			type x;                                                                                        \
                                                                                                                       \
			memcpy(&x, p + i * sizeof(type), sizeof(x));                                                   \
			x = (type)(x & (magnitude));                                                                   \
			most = x > most ? x : most;                                                                    \
		}                                                                                                      \
		return most;                                                                                           \
	}                                                                                                              \
                                                                                                                       \
	static void scan_##name(struct ckpt_scan *s, const uint8_t *p, size_t count, type inf)                         \
	{                                                                                                              \
		type most = highest_##name(p, count);                                                                  \
                                                                                                                       \
		s->all_zero = s->all_zero && !most;                                                                    \
		for (size_t i = 0; most >= inf && i < count; i++) {                                                    \
			type x;                                                                                        \
                                                                                                                       \
			memcpy(&x, p + i * sizeof(type), sizeof(x));                                                   \
			x = (type)(x & (magnitude));                                                                   \
			s->nan += x > inf;                                                                             \
			s->inf += x == inf;                                                                            \
		}                                                                                                      \
	}

SCAN(half, int16_t, HALF_MAGNITUDE)
SCAN(single, int32_t, SINGLE_MAGNITUDE)
SCAN(double, int64_t, DOUBLE_MAGNITUDE)

static bool are_zeros(const uint8_t *p, size_t bytes)
{
	return !bytes || (!*p && !memcmp(p, p + 1, bytes - 1));
}

void ckpt_scan_begin(struct ckpt_scan *s, enum ckpt_dtype dtype)
{
	*s = (struct ckpt_scan){.dtype = dtype, .all_zero = true};
}

void ckpt_scan_add(struct ckpt_scan *s, const void *elements, size_t count, double *numbers)
{
	switch (s->dtype) {
	case CKPT_DTYPE_F16:
		scan_half(s, elements, count, HALF_INF);
		return;
	case CKPT_DTYPE_BF16:
		scan_half(s, elements, count, BRAIN_INF);
		return;
	case CKPT_DTYPE_F32:
		scan_single(s, elements, count, SINGLE_INF);
		return;
	case CKPT_DTYPE_F64:
		scan_double(s, elements, count, DOUBLE_INF);
		return;
	case CKPT_DTYPE_BOOL ... CKPT_DTYPE_U64:
		s->all_zero = s->all_zero && are_zeros(elements, count * ckpt_dtype_width(s->dtype));
		return;
	default:
		break;
	}
	ckpt_numbers(s->dtype, elements, count, numbers);
	for (size_t i = 0; i < count; i++) {
		s->nan += isnan(numbers[i]) != 0;
		s->inf += isinf(numbers[i]) != 0;
		s->all_zero = s->all_zero && numbers[i] == 0;
	}
}
