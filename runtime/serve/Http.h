// An HTTP server on one thread, over libevent: any number of connections, none of which can hold up another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xfc {

enum class HttpMethod { Get, Head, Post, Options, Other };

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// A request and its answer. To be used on the server's thread. The client may go at any time: whatever is sent then is
// dropped.
class HttpExchange {
public:
  virtual ~HttpExchange() = default;

  virtual HttpMethod method() const = 0;
  virtual std::string path() const = 0;                          // decoded, without the query
  virtual std::string header(const std::string &name) const = 0; // empty if there is none
  virtual const std::string &body() const = 0;

  // The whole answer.
  virtual void reply(int status, const std::string &type, std::string_view body, const HttpHeaders &headers = {}) = 0;
  // An answer in parts: begin(), then send() any number of times, then end().
  virtual void begin(int status, const std::string &type, const HttpHeaders &headers = {}) = 0;
  virtual void send(std::string_view part) = 0;
  virtual void end() = 0;
  virtual bool answered() const = 0; // wholly, or the client has gone
  // Keeps something until the last byte of the answer is sent, or the client has gone.
  virtual void keep(std::shared_ptr<const void> something) = 0;

  // `left` is called if the client goes before the answer is complete, and `late` if that takes longer than these
  // seconds.
  virtual void onLeaving(std::function<void()> left) = 0;
  virtual void onTimeout(double seconds, std::function<void()> late) = 0;
};

struct HttpLimits {
  int64_t bodyBytes = 1 << 20;
  int idleSeconds = 60; // that a client may take to send or to read anything
};

class HttpServer {
public:
  using Handler = std::function<void(const std::shared_ptr<HttpExchange> &)>;
  HttpServer(const HttpLimits &limits, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer &) = delete;

  // Opens the socket, on which clients wait from then on. Port 0: any that is free. Returns the port. Throws Error.
  int open(const std::string &host, int port);
  // Lets clients in.
  void accept();
  // Handles requests until finish() has been called, and all requests are answered.
  void run();
  // Lets no more clients in.
  void finish();
  // Runs the task on the server's thread, soon. From any thread.
  void post(std::function<void()> task);
  // An eventfd: adding to it from any thread, or from a signal handler, wakes the server, which then calls `woken`.
  int wake() const;
  void onWaking(std::function<void()> woken);

private:
  struct State;
  std::unique_ptr<State> state;
};

// The text of a URL, or of a form (in which '+' is a blank), without its percent signs. Broken escapes stay.
std::string percentDecoded(std::string_view text, bool form);

} // namespace xfc
