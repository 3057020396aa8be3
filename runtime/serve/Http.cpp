// An HTTP server on one thread, over libevent.
#include "serve/Http.h"
#include "support/Error.h"
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <mutex>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace xfc {

namespace {

struct FreeEvent {
  void operator()(event *e) const { event_free(e); }
};
using Event = std::unique_ptr<event, FreeEvent>;

HttpMethod methodOf(evhttp_cmd_type type) {
  switch (type) {
  case EVHTTP_REQ_GET:
    return HttpMethod::Get;
  case EVHTTP_REQ_HEAD:
    return HttpMethod::Head;
  case EVHTTP_REQ_POST:
    return HttpMethod::Post;
  case EVHTTP_REQ_OPTIONS:
    return HttpMethod::Options;
  default:
    return HttpMethod::Other;
  }
}

// How many requests are not answered to their last byte, and whom to tell when none is left.
struct Pending {
  size_t count = 0;
  std::function<void()> none;
  void remove() {
    if (--count == 0 && none)
      none();
  }
};

class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
public:
  Exchange(evhttp_request *request, event_base *base, Pending &pending)
      : request(request), connection(evhttp_request_get_connection(request)), base(base), pending(pending) {
    ++pending.count;
    evbuffer *input = evhttp_request_get_input_buffer(request);
    text.resize(evbuffer_get_length(input));
    evbuffer_remove(input, text.data(), text.size());
    kind = methodOf(evhttp_request_get_command(request));
    evhttp_connection_set_closecb(
        connection, [](evhttp_connection *, void *self) { static_cast<Exchange *>(self)->closed(); }, this);
  }
  ~Exchange() override {
    if (!request)
      return;
    // Nobody will answer, so the connection cannot go on.
    evhttp_connection_set_closecb(connection, nullptr, nullptr);
    forget();
    evhttp_connection_free(connection);
    pending.remove();
  }

  HttpMethod method() const override { return kind; }
  std::string path() const override {
    const evhttp_uri *uri = request ? evhttp_request_get_evhttp_uri(request) : nullptr;
    const char *path = uri ? evhttp_uri_get_path(uri) : nullptr;
    return path ? percentDecoded(path, /*form=*/false) : std::string();
  }
  std::string header(const std::string &name) const override {
    const char *value = request ? evhttp_find_header(evhttp_request_get_input_headers(request), name.c_str()) : nullptr;
    return value ? value : "";
  }
  const std::string &body() const override { return text; }

  void reply(int status, const std::string &type, std::string_view body, const HttpHeaders &headers) override {
    if (!request)
      return;
    addHeaders(type, headers);
    evbuffer *output = evbuffer_new();
    if (kind != HttpMethod::Head)
      evbuffer_add(output, body.data(), body.size());
    else
      evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Length",
                        std::to_string(body.size()).c_str());
    evhttp_send_reply(toSend(), status, nullptr, output);
    evbuffer_free(output);
  }

  void begin(int status, const std::string &type, const HttpHeaders &headers) override {
    if (!request)
      return;
    addHeaders(type, headers);
    evhttp_send_reply_start(request, status, nullptr);
  }
  void send(std::string_view part) override {
    if (!request || part.empty())
      return;
    evbuffer *output = evbuffer_new();
    evbuffer_add(output, part.data(), part.size());
    evhttp_send_reply_chunk(request, output);
    evbuffer_free(output);
  }
  void end() override {
    if (request)
      evhttp_send_reply_end(toSend());
  }
  bool answered() const override { return !request; }
  void keep(std::shared_ptr<const void> something) override { held = std::move(something); }

  void onLeaving(std::function<void()> callback) override {
    if (!request)
      return;
    left = std::move(callback);
    // While a request is being answered, libevent does not read from its connection, and would not see it closed.
    const evutil_socket_t descriptor = bufferevent_getfd(evhttp_connection_get_bufferevent(connection));
    gone.reset(event_new(
        base, descriptor, EV_CLOSED,
        [](evutil_socket_t, short, void *self) {
          evhttp_connection_free(static_cast<Exchange *>(self)->connection); // which calls closed()
        },
        this));
    if (gone)
      event_add(gone.get(), nullptr);
  }
  void onTimeout(double seconds, std::function<void()> callback) override {
    if (!request)
      return;
    late = std::move(callback);
    timer.reset(evtimer_new(
        base,
        [](evutil_socket_t, short, void *self) {
          const std::function<void()> call = std::move(static_cast<Exchange *>(self)->late);
          call();
        },
        this));
    const auto whole = static_cast<time_t>(seconds);
    const timeval time{whole, static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
    if (timer)
      evtimer_add(timer.get(), &time);
  }

private:
  void addHeaders(const std::string &type, const HttpHeaders &headers) {
    evkeyvalq *output = evhttp_request_get_output_headers(request);
    evhttp_add_header(output, "Content-Type", type.c_str());
    for (const auto &[name, value] : headers)
      evhttp_add_header(output, name.c_str(), value.c_str());
  }

  // The request is libevent's from here on, until its last byte is sent, or the connection is closed.
  evhttp_request *toSend() {
    self = shared_from_this();
    evhttp_request_set_on_complete_cb(
        request, [](evhttp_request *, void *self) { static_cast<Exchange *>(self)->sent(); }, this);
    return forget();
  }
  evhttp_request *forget() {
    gone.reset();
    timer.reset();
    late = left = nullptr;
    return std::exchange(request, nullptr);
  }
  void sent() {
    evhttp_connection_set_closecb(connection, nullptr, nullptr);
    pending.remove();
    self.reset();
  }
  void closed() {
    const std::shared_ptr<Exchange> kept = self ? std::move(self) : shared_from_this();
    const std::function<void()> call = std::move(left);
    // If libevent has taken the request off its connection, it leaves it to us.
    if (evhttp_request *open = forget(); open && !evhttp_request_get_connection(open))
      evhttp_request_free(open);
    pending.remove();
    if (call)
      call();
  }

  evhttp_request *request; // null once the answer is complete, or the client has gone
  evhttp_connection *connection;
  event_base *base;
  Pending &pending;
  HttpMethod kind;
  std::string text;
  std::function<void()> left, late;
  Event gone, timer;
  std::shared_ptr<Exchange> self; // while the answer is being sent
  std::shared_ptr<const void> held;
};

// Connections take descriptors; the default limit is 1,024, of which a process may make use of more.
void raiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

} // namespace

struct HttpServer::State {
  Handler handler;
  event_base *base = nullptr;
  evhttp *http = nullptr;
  evconnlistener *listener = nullptr; // of `http`, once it is accepting
  bool accepting = false;
  Event waker;
  int wakeDescriptor = -1;
  std::function<void()> woken;
  std::mutex mutex;
  std::vector<std::function<void()>> tasks; // under the mutex
  Pending pending;

  void handle(evhttp_request *request) { handler(std::make_shared<Exchange>(request, base, pending)); }

  void wakeUp() {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wakeDescriptor, &count, sizeof count);
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      now.swap(tasks);
    }
    for (const std::function<void()> &task : now)
      task();
    if (woken)
      woken();
  }
};

HttpServer::HttpServer(const HttpLimits &limits, Handler handler) : state(std::make_unique<State>()) {
  raiseDescriptorLimit();
  state->handler = std::move(handler);
  state->base = event_base_new();
  state->http = state->base ? evhttp_new(state->base) : nullptr;
  state->wakeDescriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (!state->http || state->wakeDescriptor < 0)
    throw Error(std::string("serve: cannot create what a server needs: ") + std::strerror(errno));
  evhttp_set_max_body_size(state->http, static_cast<ev_ssize_t>(limits.bodyBytes));
  evhttp_set_max_headers_size(state->http, 16 << 10);
  evhttp_set_timeout(state->http, limits.idleSeconds);
  evhttp_set_flags(state->http, EVHTTP_SERVER_LINGERING_CLOSE); // so that a client reads why its body was refused
  evhttp_set_allowed_methods(state->http, 0xffff);              // the handler refuses those that it has no use for
  evhttp_set_gencb(
      state->http, [](evhttp_request *request, void *self) { static_cast<State *>(self)->handle(request); },
      state.get());
  state->waker.reset(event_new(
      state->base, state->wakeDescriptor, EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void *self) { static_cast<State *>(self)->wakeUp(); }, state.get()));
  event_add(state->waker.get(), nullptr);
}

HttpServer::~HttpServer() {
  if (state->listener && !state->accepting)
    evconnlistener_free(state->listener);
  if (state->http)
    evhttp_free(state->http);
  state->waker.reset();
  if (state->base)
    event_base_free(state->base);
  if (state->wakeDescriptor >= 0)
    close(state->wakeDescriptor);
}

int HttpServer::open(const std::string &host, int port) {
  const auto fail = [&](const std::string &what) {
    throw Error("--host " + host + " --port " + std::to_string(port) + ": " + what);
  };
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (const int problem = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    fail(std::string("no such address: ") + gai_strerror(problem));
  const std::unique_ptr<addrinfo, void (*)(addrinfo *)> addresses(found, freeaddrinfo);
  state->listener =
      evconnlistener_new_bind(state->base, nullptr, nullptr,
                              LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_DISABLED,
                              1024, found->ai_addr, static_cast<int>(found->ai_addrlen));
  if (!state->listener)
    fail(std::string("cannot listen there: ") + std::strerror(errno));
  // If no descriptor is left for another connection, whoever comes waits in the socket's queue for a while.
  evconnlistener_set_error_cb(state->listener, [](evconnlistener *listener, void *) {
    evconnlistener_disable(listener);
    const timeval time{0, 100000};
    event_base_once(
        evconnlistener_get_base(listener), -1, EV_TIMEOUT,
        [](evutil_socket_t, short, void *listener) { evconnlistener_enable(static_cast<evconnlistener *>(listener)); },
        listener, &time);
  });
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(evconnlistener_get_fd(state->listener), reinterpret_cast<sockaddr *>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in *>(&bound)->sin_port);
}

void HttpServer::accept() {
  evhttp_bind_listener(state->http, state->listener);
  evconnlistener_enable(state->listener);
  state->accepting = true;
}

void HttpServer::finish() {
  evconnlistener_disable(state->listener);
  shutdown(evconnlistener_get_fd(state->listener), SHUT_RDWR);
  state->pending.none = [this] { event_base_loopexit(state->base, nullptr); };
  if (state->pending.count == 0)
    state->pending.none();
}

void HttpServer::run() { event_base_dispatch(state->base); }

void HttpServer::post(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->tasks.push_back(std::move(task));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(state->wakeDescriptor, &one, sizeof one);
}

int HttpServer::wake() const { return state->wakeDescriptor; }
void HttpServer::onWaking(std::function<void()> woken) { state->woken = std::move(woken); }

std::string percentDecoded(std::string_view text, bool form) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      result += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      result += form && text[i] == '+' ? ' ' : text[i];
    }
  return result;
}

} // namespace xfc
