// The body of fmt, compiled here once instead of in every file that formats a message: header-only
// fmt costs each of them 5 s of the compiler. It stays inside libqkv, so that nobody needs libfmt
// to run. cmake/Dependencies.cmake chooses this way for the fmt that the list below was written for
// (9), and header-only fmt (then this file is empty) for any other.
#ifndef FMT_HEADER_ONLY
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template thousands_sep_result<wchar_t> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template wchar_t decimal_point_impl(locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
#endif
