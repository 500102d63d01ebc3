// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_EXAMPLES_SHOWN_HPP
#define TESSERA_TESTS_EXAMPLES_SHOWN_HPP

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/support.hpp"

namespace tessera::test {

inline std::string text_of(std::filesystem::path const& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), "cannot read " << path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What stands between two lines.
inline std::string between(std::string const& text, std::string const& first, std::string const& last) {
  auto const begin = text.find(first);
  REQUIRE(begin != std::string::npos);
  auto const end = text.find(last, begin + first.size());
  REQUIRE(end != std::string::npos);
  return text.substr(begin + first.size(), end - begin - first.size());
}

/// A page's first C++ example is what stands between the marks of a source of tests/examples.
inline void check_shown(std::string const& page, std::filesystem::path const& source) {
  std::filesystem::path const project = source.parent_path().parent_path().parent_path();
  CHECK(between(text_of(project / page), "```cpp\n", "```") ==
        between(text_of(source), "// [example]\n", "// [end]\n"));
}

}  // namespace tessera::test

#endif
