# Numbers of the figures once more, in R: `Rscript examples/experiments/outside.R > docs/figures/outside_r.csv`.
#
# Nothing of Python or of the library is read. VGAM (Debian: r-cran-vgam) has the Laplace and the Beta-binomial
# distribution; all else is plain R.

suppressPackageStartupMessages(library(VGAM))

root <- function(f, low, high) uniroot(f, c(low, high), tol = 1e-13)$root

# Beta(first, second) against Beta(second, first): the ratio is (u / (1 - u))^(first - second).
delta_of_shares <- function(epsilon, first, second) {
  at <- 1 / (1 + exp(-epsilon / (first - second)))
  pbeta(at, first, second, lower.tail = FALSE) - exp(epsilon) * pbeta(at, second, first, lower.tail = FALSE)
}
crossing <- function(delta, first, second) {
  root(function(e) log(delta_of_shares(e, first, second)) - log(delta), 1e-3, 50)
}
exact_of_figure_8 <- function(order, r) {
  prior <- 1 + 4 * (order - 1) * r
  root(function(e) delta_of_shares(e, prior + r, prior) * 1e5 - 1, 1e-3, 2)
}

# Gamma(prior) against Gamma(prior + 1).
one_more_record <- function(prior, delta) {
  delta_at <- function(e) {
    least <- prior * exp(-e)
    most <- prior * exp(e)
    max(pgamma(least, prior) - exp(e) * pgamma(least, prior + 1),
        pgamma(most, prior + 1, lower.tail = FALSE) - exp(e) * pgamma(most, prior, lower.tail = FALSE))
  }
  root(function(e) delta_at(e) / delta - 1, 0.1, 20)
}

# One of two entries at the floor below gamma: singles less the pair.
below <- function(k, eta, gamma) {
  pair <- integrate(function(t) {
    x <- gamma * t^4
    dbeta(x, k * eta, k * (1 - eta)) * 4 * gamma * t^3 * pbeta(gamma / (1 - x), k * eta, k * (1 - 2 * eta))
  }, 0, 1, rel.tol = 1e-11, abs.tol = 0)$value
  2 * pbeta(gamma, k * eta, k * (1 - eta)) - pair
}
theorem_1 <- function(k, b, eta, etabar, delta) {
  gamma <- exp(root(function(t) log(below(k, eta, exp(t))) - log(delta), -30, log(0.4)))
  whole <- 1 - etabar - eta
  lbeta(k * eta, k * whole) - lbeta(k * (eta + b / 2), k * (whole - b / 2)) + k * b / 2 * log((1 - gamma) / gamma)
}

# The Hellinger mechanism for Beta(1, 1): rows are data sets, columns posteriors.
distances <- function(n) {
  x <- 0:n
  log_beta <- function(a, b) lbeta(a + 1, b + 1)
  affinity <- outer(x, x, function(a, b) {
    log_beta((a + b) / 2, n - (a + b) / 2) - (log_beta(a, n - a) + log_beta(b, n - b)) / 2
  })
  sqrt(pmax(-expm1(affinity), 0))
}
definition_4 <- function(n) {
  far <- distances(n)
  step <- far[cbind(1:n, 2:(n + 1))]
  local <- pmax(c(step, 0), c(0, step))
  smooth <- 1 / apply(1 / matrix(local, n + 1, n + 1, byrow = TRUE) + abs(outer(0:n, 0:n, "-")), 1, min)
  weights <- exp(-far / (4 * smooth))
  weights / rowSums(weights)
}
expected <- function(n) sum(definition_4(n)[n / 2 + 1, ] * distances(n)[n / 2 + 1, ])
lost <- function(n) max(abs(diff(log(definition_4(n)))))
lap_mech <- function(n, scale) {
  shares <- diff(c(0, plaplace(1:n - n / 2, scale = scale), 1))
  sum(shares * distances(n)[n / 2 + 1, ])
}

# P2's Appendix D at rho 0.1: the least divergence along the boundary of (rho, 3)-tCDP.
balance <- function(rho, n = 1000, d = 10) {
  log_b <- function(u) lgamma(u[1]) + lgamma(u[2]) - lgamma(sum(u))
  renyi <- function(order, u, v) (log_b(order * u - (order - 1) * v) - order * log_b(u) + (order - 1) * log_b(v)) / (order - 1)
  lost <- function(a, r) renyi(3, c(a + r, a), c(a, a + r)) / 3
  least <- function(r) root(function(a) lost(a, r) / rho - 1, max(1, 2 * r * (1 + 1e-9)), 100 + 100 * r^2 / rho)
  x <- 0:n
  weights <- dbetabinom.ab(x, n, 1, d - 1)
  cost <- function(r) {
    alpha <- least(r)
    u <- x + 1
    v <- r * x + alpha
    d * sum(weights * (lgamma(v) - lgamma(u) + (u - v) * (digamma(u) - digamma(n + d)))) -
      lgamma(r * n + d * alpha) + lgamma(n + d)
  }
  optimize(cost, c(0.2, 0.8), tol = 1e-9)$objective
}

values <- list(
  c("p1_figure_2", "delta, 2 entries, gamma 0.001", below(171.87, 0.028, 1e-3)),
  c("p1_figure_3", "bound, order 2, r 0.1", 0.02 * trigamma(1.3)),
  c("p1_figure_8", "exact, order 2, r 0.1", exact_of_figure_8(2, 0.1)),
  c("p1_figure_8", "exact, order 10, r 0.1", exact_of_figure_8(10, 0.1)),
  c("p2_appendix_d", "kl, rho 0.1", balance(0.1)),
  c("p2_figure_1", "bound, prior 1.5", trigamma(0.5) / 2),
  c("p2_figure_1", "exact, prior 1.5", (lgamma(0.5) - 2 * lgamma(1.5) + lgamma(2.5)) / 2),
  c("p2_figure_1", "exact epsilon, prior 5, delta 1e-6", one_more_record(5, 1e-6)),
  c("p3_figure_1", "deviation, exact", 0.1 / root(function(s) pnorm(s / 2 - 1 / s) - exp(1) * pnorm(-s / 2 - 1 / s) - 0.01, 0.05, 5)),
  c("p3_figure_3", "k 24, corrected", theorem_1(24, 0.4, 0.05, 0.05, 0.05)),
  c("p3_figure_3", "k 24, exact", crossing(0.05, 24 * 0.25, 24 * 0.05)),
  c("p3_figure_3", "k 24, true delta", delta_of_shares(8.53, 24 * 0.25, 24 * 0.05)),
  c("p3_table_1_figure_4", "exact epsilon", root(function(e) delta_of_shares(e, 24 * 0.055, 24 * 0.05) - 0.05, 1e-4, 1)),
  c("p4_figure_5", "10 records, printed", expected(10)),
  c("p4_figure_5", "300 records, printed", expected(300)),
  c("p4_figure_5", "300 records, Laplace noise", lap_mech(300, 2)),
  c("p4_figure_7", "prior 1, 300 records, printed", lost(300)),
  c("p4_tables_1_2", "no step, 1000 records, printed", definition_4(1000)[501, 501])
)
write.csv(data.frame(name = sapply(values, `[`, 1), what = sapply(values, `[`, 2),
                     r = sprintf("%.10g", as.numeric(sapply(values, `[`, 3)))), row.names = FALSE, quote = 2)
