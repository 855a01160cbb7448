class Inkling < Formula
  desc "@SUMMARY@"
  homepage "@URL@"
  url "@URL@/releases/download/v@VERSION@/inkling-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "make" => :build
  depends_on "pkgconf" => :build
  depends_on "jansson"
  depends_on "pcre2"
  depends_on "utf8proc"

  def install
    # The kernels are compiled for several instruction sets, from which the program chooses.
    ENV.runtime_cpu_detection
    ENV["HOMEBREW_OPTIMIZATION_LEVEL"] = "O3"
    system OS.mac? ? "gmake" : "make", "install", "PREFIX=#{prefix}", "CC=#{ENV.cc}", "NO_CUDA=1", "NO_MPI=1", "NO_STATIC=1", "NO_INSTALL=1"
    # The list for make uninstall, which brew does not need.
    rm_r lib/"inkling"
  end

  test do
    (testpath/"text.txt").write "a small text about a small model. " * 200
    system bin/"inkling", "train", "text.txt", *%w[--layers 1 --heads 1 --dim 16 --ctx 16 --steps 2]
    system bin/"inkling", "generate", "text.run", "-n", "5"
  end
end
