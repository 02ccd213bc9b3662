// SPDX-License-Identifier: Apache-2.0
//
// C++ for clang to compile, for the differential test. No header of the standard library: LLVM's own allocations then
// depend less on the addresses that the allocator gives it.

template <typename Value>
struct List {
  Value value;
  List* next;
};

template <int Depth>
struct Nest {
  static int Sum(int seed) { return Nest<Depth - 1>::Sum(seed * 3 + Depth) + Depth; }
};
template <>
struct Nest<0> {
  static int Sum(int seed) { return seed; }
};

struct Expression {
  virtual ~Expression() {}
  virtual long Evaluate(long x) const = 0;
};

struct Constant : Expression {
  explicit Constant(long value) : value(value) {}
  long Evaluate(long) const override { return value; }
  long value;
};

template <typename Operation>
struct Binary : Expression {
  Binary(const Expression* left, const Expression* right) : left(left), right(right) {}
  long Evaluate(long x) const override { return Operation::Apply(left->Evaluate(x), right->Evaluate(x)); }
  const Expression *left, *right;
};

struct Add {
  static long Apply(long a, long b) { return a + b; }
};
struct Multiply {
  static long Apply(long a, long b) { return a * b; }
};
struct Shift {
  static long Apply(long a, long b) { return a << (b & 7); }
};

long Evaluate(long x) {
  Constant one(1), two(2), three(3);
  Binary<Add> sum(&one, &two);
  Binary<Multiply> product(&sum, &three);
  Binary<Shift> shifted(&product, &two);
  return shifted.Evaluate(x) + Nest<60>::Sum(static_cast<int>(x));
}

long Deep(long a, long b) {
  return (((((((((((((((((((((a + 1) * b + 2) * a + 3) * b + 4) * a + 5) * b + 6) * a + 7) * b + 8) * a + 9) * b + 10) *
                        a +
                    11) *
                       b +
                   12) *
                      a +
                  13) *
                     b +
                 14) *
                    a +
                15) *
                   b +
               16) *
                  a +
              17) *
                 b +
             18) *
                a +
            19) *
               b +
           20) *
              a +
          21) *
         b;
}

template <typename Value>
int Length(const List<Value>* list) {
  int length = 0;
  for (; list; list = list->next) length++;
  return length;
}

template <typename Value, int Size>
struct Sorter {
  void Sort(Value (&values)[Size]) {
    for (int i = 1; i < Size; i++) {
      Value value = values[i];
      int at = i;
      while (at > 0 && value < values[at - 1]) {
        values[at] = values[at - 1];
        at--;
      }
      values[at] = value;
    }
  }
};

int Switch(int number, const char* text) {
  switch (number & 15) {
    case 0:
      return text[0];
    case 1:
      return text[1] * 3;
    case 2:
      return text[2] * 5;
    case 3:
      return text[3] + 7;
    case 4:
      return text[4] ^ 9;
    case 5:
      return text[5] - 11;
    case 6:
      return text[6] << 1;
    case 7:
      return Switch(number >> 4, text + 1);
    default:
      return number;
  }
}

int Guarded(int number) {
  try {
    if (number > 10) throw number;
    return Switch(number, "0123456789");
  } catch (int caught) {
    return caught / 2;
  }
}

double Matrix(const double (&a)[8][8], const double (&b)[8][8]) {
  double trace = 0;
  for (int i = 0; i < 8; i++) {
    for (int j = 0; j < 8; j++) {
      double sum = 0;
      for (int k = 0; k < 8; k++) sum += a[i][k] * b[k][j];
      if (i == j) trace += sum;
    }
  }
  return trace;
}

int main(int count, char** words) {
  List<int> last = {1, nullptr}, first = {2, &last};
  int ints[9] = {5, 3, 1, 7, 9, 2, 8, 4, 6};
  double doubles[5] = {2.5, 0.5, 1.5, 4.5, 3.5};
  Sorter<int, 9>().Sort(ints);
  Sorter<double, 5>().Sort(doubles);
  auto square = [count](auto x) { return x * x + count; };
  double matrix[8][8];
  for (auto& row : matrix) {
    for (double& cell : row) cell = square(doubles[count % 5]);
  }
  return Length(&first) + ints[count % 9] + square(static_cast<int>(doubles[0])) + Guarded(count) +
         static_cast<int>(Evaluate(count) + Deep(count, 3) + Matrix(matrix, matrix)) + words[0][0];
}
