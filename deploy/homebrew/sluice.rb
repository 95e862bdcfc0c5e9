# scripts/formula replaces VERSION and SHA256.
class Sluice < Formula
  desc "Rate limiter: gateway and decision service for proxies and programs"
  homepage "https://github.com/sluicehq/sluice"
  version "VERSION"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/sluicehq/sluice/releases/download/vVERSION/sluice-vVERSION-darwin-arm64.tar.gz"
      sha256 "SHA256"
    end
    on_intel do
      url "https://github.com/sluicehq/sluice/releases/download/vVERSION/sluice-vVERSION-darwin-amd64.tar.gz"
      sha256 "SHA256"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/sluicehq/sluice/releases/download/vVERSION/sluice-vVERSION-linux-arm64.tar.gz"
      sha256 "SHA256"
    end
    on_intel do
      url "https://github.com/sluicehq/sluice/releases/download/vVERSION/sluice-vVERSION-linux-amd64.tar.gz"
      sha256 "SHA256"
    end
  end

  def install
    bin.install "sluice"
    generate_completions_from_executable(bin/"sluice", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/sluice version")
  end
end
